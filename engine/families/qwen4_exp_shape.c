/* The shape of a Qwen4-Exp model, from config.json. Defaults are the reference class's. */
#include "families/qwen4_exp.h"

#include "blocks/ngram.h"
#include "families/config_keys.h"
#include "families/quantization.h"
#include "families/qwen4_exp_config.h"
#include "formats/json.h"
#include "util/err.h"
#include "util/shown.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- layers ---- */

static bool is_linear_name(const char *type)
{
    return strcmp(type, "linear_attention") == 0;
}

/* One kind of layer under three names: the release's, and those of two versions of the
 * reference. */
static bool is_sparse_name(const char *type)
{
    return strcmp(type, "full_attention") == 0 || strcmp(type, "indexed_attention") == 0 ||
           strcmp(type, "qwen_sparse_attention") == 0;
}

static int read_listed_layers(struct model_shape *s, const struct json *tc, const json_t *types,
                              struct err *err)
{
    if (json_array_size(types) != s->n_layers)
        return err_set(err, ERR_FORMAT, "%s: 'layer_types' has %zu entries, there are %u layers",
                       tc->name, json_array_size(types), s->n_layers);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || (!is_linear_name(type) && !is_sparse_name(type)))
            return err_set(err, ERR_UNSUPPORTED, "%s: 'layer_types' has %s at %u: only "
                           "linear_attention and full_attention (indexed_attention, "
                           "qwen_sparse_attention) are built", tc->name,
                           type ? shown_name(type).text : "what is no name", i);
        s->layer_is_linear[i] = is_linear_name(type);
    }
    return 0;
}

static int read_layers(struct model_shape *s, const struct json *tc,
                       struct config_warnings *warnings, struct err *err)
{
    const json_t *types = json_object_get(tc->root, "layer_types");
    uint32_t interval;
    bool differs = false;

    if (json_u32_or(&interval, tc, "full_attention_interval", 4, 1, QWEN4_MAX_WIDTH, err) < 0)
        return -1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layer_is_linear[i] = (i + 1) % interval != 0;
    if (types && !json_is_null(types)) {
        const struct model_shape by_interval = *s;
        if (read_listed_layers(s, tc, types, err) < 0)
            return -1;
        differs = memcmp(by_interval.layer_is_linear, s->layer_is_linear,
                         sizeof s->layer_is_linear) != 0;
    }
    if (differs && json_has(tc, "full_attention_interval"))
        config_warn(warnings, "'full_attention_interval' is %u and 'layer_types' says otherwise: "
                    "ignored, as in the reference", interval);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->n_linear_layers += s->layer_is_linear[i];
        s->layer_is_moe[i] = true;
    }
    s->n_moe_layers = s->n_layers;
    return 0;
}

/* ---- attention ---- */

static int read_heads(struct model_shape *s, const struct json *tc, struct err *err)
{
    if (json_u32_or(&s->n_heads, tc, "num_attention_heads", 16, 1, QWEN4_MAX_HEADS, err) < 0 ||
        json_u32_or(&s->n_kv_heads, tc, "num_key_value_heads", 2, 1, QWEN4_MAX_HEADS, err) < 0 ||
        json_u32_or(&s->head_dim, tc, "head_dim", 256, 1, QWEN4_MAX_WIDTH, err) < 0)
        return -1;
    if (s->n_heads % s->n_kv_heads)
        return err_set(err, ERR_FORMAT, "%s: 'num_attention_heads' is %u: must be a multiple of "
                       "'num_key_value_heads', which is %u", tc->name, s->n_heads, s->n_kv_heads);
    if (s->n_heads / s->n_kv_heads > QWEN4_MAX_HEADS_PER_KV)
        return err_set(err, ERR_UNSUPPORTED, "%s: %u 'num_attention_heads' share one of "
                       "'num_key_value_heads': at most %d are built", tc->name,
                       s->n_heads / s->n_kv_heads, QWEN4_MAX_HEADS_PER_KV);
    if (s->head_dim > QWEN4_MAX_HEAD_DIM)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'head_dim' is %u: at most %d is built", tc->name,
                       s->head_dim, QWEN4_MAX_HEAD_DIM);
    return 0;
}

/* All five keys or none, and none only where no layer attends. */
static int read_index(struct model_shape *s, const struct json *tc, struct err *err)
{
    static const char *const keys[] = {
        "indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget",
        "indexer_compress_ratio",
    };
    struct index_shape *x = &s->index;
    uint32_t kv_heads, n_given = 0;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        n_given += json_has(tc, keys[i]);
    if (n_given == 0 && shape_kv_layers(s) == 0)
        return 0;
    if (json_u32(&x->n_heads, tc, keys[0], 1, QWEN4_MAX_HEADS, err) < 0 ||
        json_u32(&kv_heads, tc, keys[1], 1, QWEN4_MAX_HEADS, err) < 0 ||
        json_u32(&x->head_dim, tc, keys[2], 1, QWEN4_MAX_WIDTH, err) < 0 ||
        json_u32(&x->budget, tc, keys[3], 1, 1 << 30, err) < 0 ||
        json_u32(&x->ratio, tc, keys[4], 1, 1 << 30, err) < 0)
        return -1;
    if (kv_heads != 1)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'indexer_kv_heads' is %u: only 1 is built",
                       tc->name, kv_heads);
    if (x->n_heads > QWEN4_MAX_INDEX_HEADS)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'indexer_n_heads' is %u: at most %d are built",
                       tc->name, x->n_heads, QWEN4_MAX_INDEX_HEADS);
    if (x->head_dim > QWEN4_MAX_HEAD_DIM)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'indexer_head_dim' is %u: at most %d is built",
                       tc->name, x->head_dim, QWEN4_MAX_HEAD_DIM);
    if (x->budget % x->ratio)
        return err_set(err, ERR_FORMAT, "%s: 'indexer_budget' is %u: must be a multiple of "
                       "'indexer_compress_ratio', which is %u", tc->name, x->budget, x->ratio);
    return 0;
}

static int read_linear(struct model_shape *s, const struct json *tc, struct err *err)
{
    struct linear_shape *l = &s->linear;

    if (json_u32_or(&l->n_key_heads, tc, "linear_num_key_heads", 16, 1, QWEN4_MAX_HEADS,
                    err) < 0 ||
        json_u32_or(&l->n_value_heads, tc, "linear_num_value_heads", 32, 1, QWEN4_MAX_HEADS,
                    err) < 0 ||
        json_u32_or(&l->key_dim, tc, "linear_key_head_dim", 128, 1, QWEN4_MAX_HEADS, err) < 0 ||
        json_u32_or(&l->value_dim, tc, "linear_value_head_dim", 128, 1, QWEN4_MAX_HEADS,
                    err) < 0 ||
        json_u32_or(&l->kernel, tc, "linear_conv_kernel_dim", 4, 2, QWEN4_MAX_TAPS, err) < 0)
        return -1;
    if (l->n_value_heads % l->n_key_heads)
        return err_set(err, ERR_FORMAT, "%s: 'linear_num_value_heads' is %u: must be a multiple of "
                       "'linear_num_key_heads', which is %u", tc->name, l->n_value_heads,
                       l->n_key_heads);
    return 0;
}

/* ---- n-grams ---- */

/* Ids count from 1; the reference sorts them and takes each once. */
static int read_ngram_layers(struct model_shape *s, const struct json *tc, struct err *err)
{
    bool listed[MODEL_MAX_LAYERS] = { false };
    uint32_t ids[MODEL_MAX_LAYERS], n;
    const json_t *list = json_object_get(tc->root, "ple_layer_ids");

    if (list && !json_is_null(list) && !json_is_array(list))
        return err_set(err, ERR_FORMAT, "%s: 'ple_layer_ids' must be a list", tc->name);
    if (json_u32_list(ids, &n, MODEL_MAX_LAYERS, tc, "ple_layer_ids", err) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < 1 || ids[i] > s->n_layers)
            return err_set(err, ERR_FORMAT, "%s: 'ple_layer_ids' has %u: there are %u layers, "
                           "from 1", tc->name, ids[i], s->n_layers);
        if (!s->layer_is_linear[ids[i] - 1])
            return err_set(err, ERR_FORMAT, "%s: 'ple_layer_ids' has %u, which is no "
                           "linear_attention layer", tc->name, ids[i]);
        listed[ids[i] - 1] = true;
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        if (!listed[i])
            continue;
        if (s->ngram.n_tables == SHAPE_MAX_TABLES)
            return err_set(err, ERR_UNSUPPORTED, "%s: 'ple_layer_ids' has more than %d layers: no "
                           "more are built", tc->name, SHAPE_MAX_TABLES);
        s->ngram.layers[s->ngram.n_tables++] = i;
    }
    return 0;
}

static int size_table(struct model_shape *s, const struct json *tc,
                      const struct qwen4_exp_config *c, uint32_t table, struct err *err)
{
    struct ngram ngram;
    struct table_shape *n = &s->ngram;

    if (qwen4_exp_ngram(&ngram, c, s->vocab, table, err) < 0) {
        if (err)
            err->kind = ERR_UNSUPPORTED;
        return err_within(err, "%s", tc->name);
    }
    n->rows[table] = ngram.n_rows;
    if (n->rows[table] % n->n_parts)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'split_ngram_parts' is %u: parts of %" PRIu64
                       " rows would differ, and only equal ones are built", tc->name, n->n_parts,
                       n->rows[table]);
    return 0;
}

static int read_ngrams(struct model_shape *s, const struct json *tc,
                       const struct qwen4_exp_config *c, struct err *err)
{
    struct table_shape *n = &s->ngram;
    uint32_t width;

    if (read_ngram_layers(s, tc, err) < 0)
        return -1;
    if (n->n_tables == 0) {
        n->fp8 = false;
        return 0;
    }
    if (json_u32_or(&width, tc, "ple_embed_dim", s->hidden, 1, QWEN4_MAX_WIDTH, err) < 0 ||
        json_u32_or(&n->kernel, tc, "ple_conv_kernel_size", 4, 1, QWEN4_MAX_TAPS, err) < 0 ||
        json_u32_or(&n->n_parts, tc, "split_ngram_parts", 512, 1, 1 << 16, err) < 0)
        return -1;
    n->order = c->ngram_size;
    n->n_heads = (c->ngram_size - 1) * c->heads_per_ngram;
    if (n->n_heads * n->n_tables > NGRAM_MAX_HEADS)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'heads_per_ngram', 'ngram_size' and "
                       "'ple_layer_ids' make %u n-gram heads in all: at most %d are built",
                       tc->name, n->n_heads * n->n_tables, NGRAM_MAX_HEADS);
    if (width % n->n_heads)
        return err_set(err, ERR_FORMAT, "%s: 'ple_embed_dim' is %u: must be a multiple of %u, the "
                       "n-gram heads ('ngram_size', 'heads_per_ngram')", tc->name, width,
                       n->n_heads);
    n->head_dim = width / n->n_heads;
    if (c->ngram_eos >= s->vocab)
        return err_set(err, ERR_FORMAT, "%s: 'eos_token_id' is %u, 'vocab_size' is %u", tc->name,
                       c->ngram_eos, s->vocab);
    for (uint32_t i = 0; i < n->n_tables; i++)
        if (size_table(s, tc, c, i, err) < 0)
            return -1;
    return 0;
}

/* ---- the rest ---- */

static int read_experts(struct model_shape *s, const struct json *tc, struct err *err)
{
    if (json_u32_or(&s->n_experts, tc, "num_experts", 512, 1, QWEN4_MAX_EXPERTS, err) < 0 ||
        json_u32_or(&s->experts_per_token, tc, "num_experts_per_tok", 10, 1, QWEN4_MAX_EXPERTS,
                    err) < 0 ||
        json_u32_or(&s->expert_width, tc, "moe_intermediate_size", 512, 1, QWEN4_MAX_WIDTH,
                    err) < 0 ||
        json_u32_or(&s->shared_width, tc, "shared_expert_intermediate_size", 512, 1,
                    QWEN4_MAX_WIDTH, err) < 0)
        return -1;
    if (s->experts_per_token > s->n_experts)
        return err_set(err, ERR_FORMAT, "%s: 'num_experts_per_tok' is %u: there are %u experts",
                       tc->name, s->experts_per_token, s->n_experts);
    return 0;
}

static int read_streams(struct model_shape *s, const struct json *tc, struct err *err)
{
    if (json_u32_or(&s->streams.n, tc, "hc_count", 4, 2, QWEN4_MAX_STREAMS, err) < 0 ||
        json_u32_or(&s->streams.rank, tc, "hc_lowrank", 320, 1, QWEN4_MAX_WIDTH, err) < 0)
        return -1;
    return 0;
}

/* A number, or the first of a list that says it for each direction. */
static int read_side(uint32_t *first, uint32_t *last, const struct json *v, const char *key,
                     uint32_t absent, struct err *err)
{
    uint32_t sides[3], n;

    if (json_u32_list(sides, &n, 3, v, key, err) < 0)
        return -1;
    *first = n ? sides[0] : absent;
    *last = n ? sides[n - 1] : absent;
    return *first < 1 || *last < 1 || *first > 4096 || *last > 4096
               ? err_set(err, ERR_FORMAT, "%s: '%s' is not between 1 and 4096", v->name, key)
               : 0;
}

/* Only to say what the files hold. */
static int read_unused(struct model_shape *s, const struct json *config, const struct json *tc,
                       struct err *err)
{
    struct vision_shape *v = &s->unused.vision;
    struct json j;
    uint32_t wide, high, again;

    s->unused.may_be_there = true;
    if (json_u32_or(&s->unused.n_mtp_layers, tc, "mtp_num_hidden_layers", 0, 0, MODEL_MAX_LAYERS,
                    err) < 0 ||
        json_child(&j, config, "vision_config", err) < 0)
        return -1;
    if (!j.root)
        return 0;
    if (json_u32_or(&v->depth, &j, "depth", 27, 0, MODEL_MAX_LAYERS, err) < 0 ||
        json_u32_or(&v->hidden, &j, "hidden_size", 1152, 1, QWEN4_MAX_WIDTH, err) < 0 ||
        json_u32_or(&v->width, &j, "intermediate_size", 4304, 1, QWEN4_MAX_WIDTH, err) < 0 ||
        json_u32_or(&v->channels, &j, "in_channels", 3, 1, 4096, err) < 0 ||
        json_u32_or(&v->merge, &j, "spatial_merge_size", 2, 1, 64, err) < 0 ||
        json_u32_or(&v->positions, &j, "num_position_embeddings", 2304, 1, 1 << 30, err) < 0 ||
        json_u32_or(&v->out, &j, "out_hidden_size", 3584, 1, QWEN4_MAX_WIDTH, err) < 0 ||
        read_side(&high, &wide, &j, "patch_size", 16, err) < 0 ||
        read_side(&v->frames, &again, &j, "temporal_patch_size", 2, err) < 0)
        return -1;
    v->patch_pixels = high * wide;
    return 0;
}

/* State that does not grow: the recurrence, the inputs that convolutions look back at. */
static uint64_t recurrent_floats(const struct model_shape *s)
{
    const struct linear_shape *l = &s->linear;
    uint64_t keys = (uint64_t)l->n_key_heads * l->key_dim;
    uint64_t values = (uint64_t)l->n_value_heads * l->value_dim;
    uint64_t each = values * l->key_dim + (2 * keys + values) * (l->kernel - 1);
    uint64_t ngram = (uint64_t)s->streams.n * s->hidden;

    if (s->ngram.n_tables)
        ngram *= (s->ngram.kernel - 1) * (uint64_t)s->ngram.order * s->ngram.n_tables;
    return s->n_linear_layers * each + (s->ngram.n_tables ? ngram : 0);
}

int qwen4_exp_read_shape(struct model_shape *out, struct config_warnings *warnings,
                         const struct json *config, struct err *err)
{
    struct model_shape s = { .model_type = "qwen4_exp", .may_be_fused = true };
    struct config_warnings w = { 0 };
    struct qwen4_exp_config c;
    struct json tc;

    if (qwen4_exp_read_config(&c, config, &w, err) < 0 ||
        qwen4_exp_text_config(&tc, config, err) < 0 ||
        quantization_read(&s.fp8, config, &s.ngram.fp8, &w, err) < 0 ||
        json_u32_or(&s.vocab, &tc, "vocab_size", 248320, 1, QWEN4_MAX_VOCAB, err) < 0 ||
        json_u32_or(&s.hidden, &tc, "hidden_size", 2048, 1, QWEN4_MAX_WIDTH, err) < 0 ||
        json_u32_or(&s.n_layers, &tc, "num_hidden_layers", 40, 1, MODEL_MAX_LAYERS, err) < 0 ||
        read_layers(&s, &tc, &w, err) < 0 || read_heads(&s, &tc, err) < 0 ||
        read_index(&s, &tc, err) < 0 || read_linear(&s, &tc, err) < 0 ||
        read_streams(&s, &tc, err) < 0 || read_experts(&s, &tc, err) < 0 ||
        read_ngrams(&s, &tc, &c, err) < 0 || read_unused(&s, config, &tc, err) < 0)
        return -1;
    s.text_only = tc.root == config->root;
    s.max_positions = c.max_positions;
    s.kv_values_per_token = 2 * (uint64_t)s.n_kv_heads * s.head_dim * shape_kv_layers(&s);
    s.recurrent_floats = recurrent_floats(&s);
    *out = s;
    if (warnings)
        *warnings = w;
    return 0;
}
