/* selftest: how its parts report. Only for selftest*.c. */
#ifndef RUN_SELFTEST_H
#define RUN_SELFTEST_H

#include <stdbool.h>
#include <stdint.h>

struct cz_options;
struct err;

struct selftest {
    void (*line)(void *ctx, bool passed, const char *text);
    void *ctx;
    int n_failed;
};

void selftest_line(struct selftest *t, bool passed, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Conversions, every kernel class of this CPU against the scalar one, the pool. */
int selftest_kernels(struct selftest *t, uint32_t n_threads, struct err *err);
/* One short reply, computed in many ways that must give the same bits. */
int selftest_model(struct selftest *t, const struct cz_options *opt, struct err *err);
int selftest_tokenizer(struct selftest *t, const char *model_dir, struct err *err);

#endif
