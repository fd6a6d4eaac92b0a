#include "run/selftest.h"

#include "colizig.h"
#include "text/tokenizer.h"
#include "util/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void selftest_line(struct selftest *t, bool passed, const char *fmt, ...)
{
    char text[640];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!passed)
        t->n_failed++;
    if (t->line)
        t->line(t->ctx, passed, text);
}

/* ---- tokenizer ---- */

/* Already in NFC and valid, so decoding must give every byte back. */
static const char *const samples[] = {
    "",
    "Hello there, it's 12345 o'clock -> \"now\"!",
    "  two  blanks,\ttabs\t and\r\n\r\nlines\n\n\n",
    "na\u00efve caf\u00e9 \u00df\u00e5\u00f8 \u0416\u0443\u043a \u4e2d\u6587 "
    "\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001f600\U0001f469\u200d\U0001f4bb \u00a0\u3000|",
    "int main(void) { return a[i] != 0x7f && b <= 1e-9; }",
    "================================================================",
};

static bool same_text(const struct tokenizer *t, const struct ids *ids, const char *text)
{
    size_t at = 0, left = strlen(text);

    for (size_t i = 0; i < ids->n; i++) {
        size_t size;
        const char *piece = tokenizer_piece(t, ids->id[i], &size);
        if (!piece || size > left || memcmp(piece, text + at, size) != 0)
            return false;
        at += size;
        left -= size;
    }
    return left == 0;
}

int selftest_tokenizer(struct selftest *t, const char *model_dir, struct err *err)
{
    struct tokenizer *tokenizer;
    struct ids ids = { 0 };
    char path[4096];
    struct err why;
    size_t n_same = 0, n = sizeof samples / sizeof samples[0];
    int rc = 0;

    if (snprintf(path, sizeof path, "%s/tokenizer.json", model_dir) >= (int)sizeof path)
        return err_set(err, ERR_INPUT, "the path of the model is too long");
    if (tokenizer_open(&tokenizer, path, &why) < 0) {
        selftest_line(t, false, "tokenizer: %s", why.text);
        return 0;
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct text_run run = { .bytes = samples[i], .size = strlen(samples[i]) };
        ids.n = 0;
        rc = tokenizer_encode(tokenizer, &run, 1, 0, &ids, &why);
        if (rc == 0)
            n_same += same_text(tokenizer, &ids, samples[i]);
    }
    if (rc < 0)
        selftest_line(t, false, "tokenizer: %s", why.text);
    else
        selftest_line(t, n_same == n, "tokenizer: %zu of %zu texts come back unchanged", n_same,
                      n);
    ids_done(&ids);
    tokenizer_close(tokenizer);
    return 0;
}

/* ---- front door ---- */

int cz_selftest(const struct cz_options *opt,
                void (*line)(void *ctx, bool passed, const char *text), void *ctx,
                struct err *err)
{
    struct selftest t = { .line = line, .ctx = ctx };

    if (selftest_kernels(&t, opt->threads, err) < 0)
        return -1;
    if (!opt->model_dir)
        return t.n_failed;
    if (selftest_tokenizer(&t, opt->model_dir, err) < 0 || selftest_model(&t, opt, err) < 0)
        return -1;
    return t.n_failed;
}
