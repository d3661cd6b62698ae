/* quantize - a model file made smaller: the order that the command line gives.
 *
 * Station before: commands. Station after: worker/requantize, through main. */
#include "coordinator/front/front.h"

#include "coordinator/front/making_report.h"
#include "engine/quant_formats.h"

int quantize_run(const struct settings *s, const struct line_starter *starter, struct err *err)
{
    /* In the order of the words of --type. */
    static const uint32_t formats[] = {FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_Q4_K, FORMAT_Q6_K};
    CHECK(s->type_given, err, ERR_USAGE, "--type is needed");
    struct making_report report;
    struct made_file made;
    const struct quantize_order order = {
        .in = s->operands.items[0],
        .out = s->operands.items[1],
        .format = formats[s->type],
        .how = making_report_begin(&report, s),
    };
    const int rc = starter->quantize(&order, &made, err);
    making_report_end(&report, order.out, rc == ERR_NONE ? &made : NULL);
    return rc;
}
