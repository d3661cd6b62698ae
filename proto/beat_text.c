/* beat_text - see beat_text.h. */
#include "proto/beat_text.h"

#include <stdio.h>

const char *beat_describe(const struct msg_heartbeat *beat, char text[BEAT_TEXT_MAX])
{
    switch (beat->state) {
    case WORKER_FORWARD:
        snprintf(text, BEAT_TEXT_MAX, "in batch %llu at layer %u",
                 (unsigned long long)beat->batch_id, beat->layer);
        break;
    case WORKER_IDLE:
        snprintf(text, BEAT_TEXT_MAX, "while waiting for a batch");
        break;
    case WORKER_MEASURING:
        snprintf(text, BEAT_TEXT_MAX, "while measuring its speed");
        break;
    case 0:
        snprintf(text, BEAT_TEXT_MAX, "before it was asked to load");
        break;
    default:
        snprintf(text, BEAT_TEXT_MAX, "while loading (%llu of %llu MB)",
                 (unsigned long long)(beat->done >> 20), (unsigned long long)(beat->total >> 20));
    }
    return text;
}
