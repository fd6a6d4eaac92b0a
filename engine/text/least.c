#include "text/least.h"

#include "text/tokenizer.h"
#include "text/vocab.h"

/* NFC makes a text at most 3.5 times shorter: U+1FBE U+0308 U+0301, 7 bytes, is U+0390. */
enum { NFC_SHRINKS = 4 };

static void note_token(uint32_t longest[256], const struct vocab *v, uint32_t id)
{
    const struct piece *piece = &v->pieces[id];
    const unsigned char *bytes = (const unsigned char *)v->bytes + piece->at;

    for (uint32_t i = 0; i < piece->size; i++)
        if (longest[bytes[i]] < piece->size)
            longest[bytes[i]] = piece->size;
}

static void share_out(uint32_t share[256], const uint32_t longest[256])
{
    for (int i = 0; i < 256; i++)
        share[i] = (uint32_t)(LEAST_ONE / (longest[i] ? longest[i] : 1));
}

void least_init(struct least *l, const struct vocab *v)
{
    uint32_t longest[256] = { 0 }, most = 1;

    /* Only what merging makes counts, and bytes by themselves. */
    for (uint32_t rank = 0; rank < v->counts.n_merges; rank++)
        note_token(longest, v, v->bpe.merged[rank]);
    share_out(l->share, longest);
    l->beyond = l->share[0x80];
    for (int i = 0x80; i < 256; i++)
        l->beyond = l->share[i] < l->beyond ? l->share[i] : l->beyond;
    for (uint32_t i = 0; i < v->added.n; i++)
        note_token(longest, v, v->added.tokens[i].id);
    share_out(l->trusted, longest);
    for (int i = 0; i < 256; i++)
        most = longest[i] > most ? longest[i] : most;
    l->any = (uint32_t)(LEAST_ONE / most);
    if (v->added.strips) /* blanks may vanish beside an added token */
        l->any = 0;
}

uint64_t least_share(const struct least *l, const char *text, size_t size)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < size; i++)
        sum += l->share[(unsigned char)text[i]];
    return sum;
}

/* ASCII as it is, unless what follows may be a mark that joins it. Other bytes may be invalid,
 * or become others, so of them only the number counts. */
static uint64_t sum_run(const struct least *l, const struct text_run *run, bool nfc)
{
    const unsigned char *text = (const unsigned char *)run->bytes;
    const uint32_t *share = run->trusted ? l->trusted : l->share;
    const uint32_t other = nfc ? l->any / NFC_SHRINKS : l->any;
    uint64_t sum = 0;

    for (size_t i = 0; i < run->size; i++) {
        bool plain = text[i] < 0x80 && (!nfc || (i + 1 < run->size && text[i + 1] < 0x80));
        sum += plain ? share[text[i]] : other;
    }
    return sum;
}

size_t least_tokens(const struct least *l, const struct text_run *runs, size_t n_runs, bool nfc)
{
    uint64_t sum = 0;

    for (size_t i = 0; l->any && i < n_runs; i++)
        sum += sum_run(l, &runs[i], nfc);
    return (size_t)(sum / LEAST_ONE);
}
