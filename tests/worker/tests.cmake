# worker
tandem_test(test_scores unit SOURCES worker/test_scores.c LINK worker m)
