/* A Qwen4-Exp checkpoint that is not what it says: refused by name when it opens, or, where only a
 * row that a request asks for shows it, that request fails and the engine serves the others. */
#define MODEL "build/models/tiny4-fp8"
#include "engine_fixture.h"

#include "blocks/ngram.h"
#include "families/qwen4_exp.h"
#include "formats/shards.h"
#include "run/headers.h"
#include "store/catalog.h"

#include <jansson.h>
#include <unistd.h>

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

struct copy { /* of the checkpoint, all links but for what a test changes */
    char dir[64];
    struct model_headers headers;
};

static void shell(const char *fmt, const char *a, const char *b)
{
    char command[512];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = snprintf(command, sizeof command, fmt, a, b);
#pragma GCC diagnostic pop
    assert_true(n > 0 && (size_t)n < sizeof command);
    assert_int_equal(system(command), 0);
}

static void copy_open(struct copy *c)
{
    struct err err;

    *c = (struct copy){ .dir = "/tmp/colizig-open-XXXXXX" };
    assert_non_null(mkdtemp(c->dir));
    shell("cp -rs \"$PWD/%s/.\" %s", MODEL, c->dir);
    if (headers_open(&c->headers, MODEL, &err) < 0)
        fail_msg("%s; run make models", err.text);
}

static void copy_close(struct copy *c)
{
    headers_close(&c->headers);
    shell("rm -r %s%s", c->dir, "");
}

static void own_file(const struct copy *c, const char *name)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    shell("rm -f %s%s", path, "");
    shell("cp " MODEL "/%s %s", name, path);
}

/* One byte of a tensor. */
static void set_byte(const struct copy *c, const struct tensor *t, uint64_t at, uint8_t byte)
{
    const char *name = strrchr(c->headers.shards->files[t->file].path, '/') + 1;
    char path[160];

    own_file(c, name);
    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(t->offset + at), SEEK_SET), 0);
    assert_int_equal(fputc(byte, f), byte);
    assert_int_equal(fclose(f), 0);
}

static void is_refused(const struct copy *c, enum err_kind kind, const char *says)
{
    struct cz_options opt;
    struct cz_engine *e;
    struct err err = { 0 };

    defaults(&opt);
    opt.model_dir = c->dir;
    if (cz_open(&e, &opt, NULL, &err) == 0)
        fail_msg("%s: it opens", says);
    if (err.kind != kind || !strstr(err.text, says))
        fail_msg("%s: refused as '%s'", says, err.text);
}

/* In config.json's text_config; NULL removes the key. */
static void set_key(const struct copy *c, const char *key, const char *value)
{
    char path[160];

    json_t *root = json_load_file(MODEL "/config.json", 0, NULL);
    json_t *text = json_object_get(root, "text_config");
    assert_non_null(text);
    if (value)
        assert_int_equal(json_object_set_new(text, key, json_loads(value, JSON_DECODE_ANY, NULL)),
                         0);
    else
        assert_int_equal(json_object_del(text, key), 0);
    own_file(c, "config.json");
    snprintf(path, sizeof path, "%s/config.json", c->dir);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

static void a_config_that_is_not_built_or_not_of_these_files_is_refused_by_name(void **state)
{
    static const struct {
        const char *key, *value;
        enum err_kind kind;
        const char *says; /* NULL: the key */
    } cases[] = {
        { "attention_bias", "true", ERR_UNSUPPORTED, NULL },
        { "hidden_act", "\"gelu\"", ERR_UNSUPPORTED, NULL },
        { "output_gate_type", "\"tanh\"", ERR_UNSUPPORTED, NULL },
        { "mamba_ssm_dtype", "\"bfloat16\"", ERR_UNSUPPORTED, NULL },
        { "tie_word_embeddings", "true", ERR_UNSUPPORTED, NULL },
        { "indexer_kv_heads", "2", ERR_UNSUPPORTED, NULL },
        { "sliding_window", "64", ERR_UNSUPPORTED, NULL },
        { "indexer_budget", "15", ERR_FORMAT, NULL },
        { "indexer_head_dim", NULL, ERR_FORMAT, "indexer_head_dim" },
        { "hc_count", "1", ERR_FORMAT, NULL },
        { "ple_layer_ids", "[4]", ERR_FORMAT, NULL },
        { "num_experts_per_tok", "17", ERR_FORMAT, NULL },
        { "linear_num_value_heads", "5", ERR_FORMAT, NULL },
        { "rms_norm_eps", "0", ERR_FORMAT, NULL },
        /* possible, but the files hold something else */
        { "num_experts", "8", ERR_FORMAT, "mlp." },
        { "num_experts", "17", ERR_FORMAT, "mlp." },
        { "hc_lowrank", "17", ERR_FORMAT, "input_mix_weight" },
        { "linear_key_head_dim", "16", ERR_FORMAT, "linear_attn" },
        { "indexer_n_heads", "3", ERR_FORMAT, "index_qk_proj" },
        { "ple_conv_kernel_size", "3", ERR_FORMAT, "ple.conv1d" },
        { "split_ngram_parts", "2", ERR_FORMAT, "ngram_embedding" },
        { "seed", "99", ERR_FORMAT, "layer_multipliers" },
        { "ngram_vocab_size_base", "54", ERR_FORMAT, "ngram" },
    };
    struct copy c;

    (void)state;
    copy_open(&c);
    for (size_t i = 0; i < N_OF(cases); i++) {
        set_key(&c, cases[i].key, cases[i].value);
        is_refused(&c, cases[i].kind, cases[i].says ? cases[i].says : cases[i].key);
    }
    copy_close(&c);
}

static void constants_that_are_not_what_is_computed_are_refused_by_name(void **state)
{
    struct copy c;
    uint32_t n = 0;

    (void)state;
    copy_open(&c);
    for (uint32_t i = 0; i < c.headers.catalog->n_items; i++) {
        const struct catalog_item *item = &c.headers.catalog->items[i];
        if (item->want.role != ROLE_CONSTANT)
            continue;
        shell("cp -rsf \"$PWD/%s/.\" %s", MODEL, c.dir);
        set_byte(&c, item->tensor, item->tensor->size - 5, 0x21); /* of the last value */
        is_refused(&c, ERR_FORMAT, item->want.name);
        n++;
    }
    assert_int_equal(n, 3); /* multipliers, sizes, offsets */
    copy_close(&c);
}

/* The part of the table and the byte in it where a row begins. */
static const struct tensor *find_row(const struct copy *c, uint64_t row, uint64_t *at)
{
    for (uint32_t i = 0; i < c->headers.catalog->n_items; i++) {
        const struct tensor *t = c->headers.catalog->items[i].tensor;
        if (c->headers.catalog->items[i].want.role != ROLE_TABLE)
            continue;
        if (row < t->dims[0]) {
            *at = row * t->dims[1];
            return t;
        }
        row -= t->dims[0];
    }
    fail_msg("no such row");
    return NULL;
}

/* Steps until all is done; how many failed. */
static uint32_t run_out(struct cz_engine *e, uint64_t *id, struct err *err)
{
    struct cz_event events[16];
    uint32_t failed = 0;

    while (!cz_idle(e)) {
        int n = cz_step(e, events, 16, err);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            if (events[i].type != CZ_EVENT_FAILED)
                continue;
            failed++;
            *id = events[i].id;
            *err = events[i].err;
        }
    }
    return failed;
}

static void a_table_row_that_is_no_number_fails_its_request_and_not_the_engine(void **state)
{
    struct qwen4_exp_config config;
    struct cz_options opt;
    struct ngram ngram;
    struct err err = { 0 };
    struct copy c;
    uint64_t rows[NGRAM_MAX_HEADS], others[NGRAM_MAX_HEADS], id = 0, at = 0;
    uint32_t good = 0;

    (void)state;
    copy_open(&c);
    assert_int_equal(qwen4_exp_read_config(&config, &c.headers.config, NULL, &err), 0);
    assert_int_equal(qwen4_exp_ngram(&ngram, &config, c.headers.shape.vocab, 0, &err), 0);
    defaults(&opt);
    const uint32_t bad = prompt[0][0];
    ngram_rows(rows, &ngram, &bad, 0);
    for (bool shares = true; shares; ) { /* a token that does not ask for that row */
        shares = false;
        good++;
        ngram_rows(others, &ngram, &good, 0);
        for (uint32_t i = 0; i < ngram.n_heads; i++)
            shares = shares || others[i] == rows[3];
    }
    const struct tensor *part = find_row(&c, rows[3], &at);
    set_byte(&c, part, at + 1, 0x7F);

    opt.model_dir = c.dir;
    struct cz_engine *e = open_engine(&opt);
    struct cz_request r = { .id = 7, .prompt = &bad, .n_prompt = 1, .max_tokens = 1,
                            .sampling = { .top_p = 1.0f, .repetition_penalty = 1.0f } };
    for (int again = 0; again < 2; again++) { /* also when the row is in memory by now */
        r.id = 7;
        r.prompt = &bad;
        assert_int_equal(cz_submit(e, &r, &err), 0);
        assert_int_equal(run_out(e, &id, &err), 1);
        assert_int_equal(id, 7);
        assert_int_equal(err.kind, ERR_NUMERIC);
        if (!strstr(err.text, part->name) || !strstr(err.text, "0x7f"))
            fail_msg("%s", err.text);
        r.id = 8;
        r.prompt = &good;
        assert_int_equal(cz_submit(e, &r, &err), 0);
        assert_int_equal(run_out(e, &id, &err), 0);
    }
    assert_null(cz_fault(e));
    cz_close(e);
    copy_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_that_is_not_built_or_not_of_these_files_is_refused_by_name),
        cmocka_unit_test(constants_that_are_not_what_is_computed_are_refused_by_name),
        cmocka_unit_test(a_table_row_that_is_no_number_fails_its_request_and_not_the_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
