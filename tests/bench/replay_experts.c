/* replay_experts: what the expert store makes of orders that were recorded, for scripts/cache-replay.
 *
 *   replay_experts SLOTS... < orders
 *
 * The store, its policy and the batches in which a layer takes its loans are the engine's own; only
 * the experts are made up, 4 KiB each, all from one hole of a file, and read in turn. Input:
 *
 *   LAYERS EXPERTS PER_TOKEN READS_IN_FLIGHT        of the model, and of the engine's plan
 *   KIND LAYER ROWS EXPERT:PICKS EXPERT:PICKS ...   one line an order; LAYER counts those with
 *                                                   experts from 0; KIND 0 is prefill, 1 decode
 *
 * Output, a line for each number of slots, beginning with an empty cache:
 *
 *   SLOTS HITS MISSES HITS MISSES                   of prefill, then of decode */
#include "blocks/moe.h"
#include "formats/shards.h"
#include "io/drives.h"
#include "io/io.h"
#include "store/catalog.h"
#include "store/expert_map.h"
#include "store/expert_store.h"
#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_KINDS = 2, MAX_SLOTS = 1 << 24, MAX_ROWS = 1 << 24 };

struct order {
    uint32_t kind, layer, n_rows;
    size_t from, n; /* of the experts and picks of all orders */
};

struct orders {
    uint32_t n_layers, n_experts, per_token, reads;
    struct order *list; /* owned */
    size_t n, cap;
    uint16_t *experts;  /* owned; like picks */
    uint32_t *picks;
    size_t n_experts_in_all, experts_cap;
};

static void __attribute__((format(printf, 1, 2), noreturn)) die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("replay_experts: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ---- orders ---- */

/* The number at *at and the byte behind it, which must be `end` (a blank: also the line's end). */
static uint32_t number(char **at, uint32_t most, char end, size_t line)
{
    char *after;

    *at += strspn(*at, " ");
    errno = 0;
    unsigned long long value = strtoull(*at, &after, 10);
    if (**at < '0' || **at > '9' || errno || value > most ||
        (*after != end && !(end == ' ' && (*after == '\n' || *after == '\0'))))
        die("line %zu: no number up to %" PRIu32 " at '%.*s'", line, most,
            (int)strcspn(*at, "\n") % 40, *at);
    *at = *after == '\0' ? after : after + 1;
    return (uint32_t)value;
}

static void *grown(void *list, size_t size)
{
    void *more = realloc(list, size);

    if (!more)
        die("no memory for %zu bytes of orders", size);
    return more;
}

static void read_order(struct orders *o, char *at, size_t line)
{
    struct order next = { .kind = number(&at, N_KINDS - 1, ' ', line),
                          .layer = number(&at, o->n_layers - 1, ' ', line),
                          .n_rows = number(&at, MAX_ROWS, ' ', line),
                          .from = o->n_experts_in_all };
    int last = -1;

    while (*at && *at != '\n') {
        if (o->n_experts_in_all == o->experts_cap) {
            o->experts_cap = o->experts_cap ? 2 * o->experts_cap : 4096;
            o->experts = grown(o->experts, o->experts_cap * sizeof *o->experts);
            o->picks = grown(o->picks, o->experts_cap * sizeof *o->picks);
        }
        uint32_t expert = number(&at, o->n_experts - 1, ':', line);
        if ((int)expert <= last)
            die("line %zu: expert %" PRIu32 " behind %d", line, expert, last);
        last = (int)expert;
        o->experts[o->n_experts_in_all] = (uint16_t)expert;
        o->picks[o->n_experts_in_all++] = number(&at, next.n_rows, ' ', line);
        next.n++;
    }
    if (o->n == o->cap) {
        o->cap = o->cap ? 2 * o->cap : 1024;
        o->list = grown(o->list, o->cap * sizeof *o->list);
    }
    o->list[o->n++] = next;
}

static void read_orders(struct orders *o)
{
    char *text = NULL;
    size_t cap = 0, line = 0;

    *o = (struct orders){ 0 };
    while (getline(&text, &cap, stdin) > 0) {
        char *at = text;

        if (++line > 1) {
            read_order(o, at, line);
            continue;
        }
        o->n_layers = number(&at, MODEL_MAX_LAYERS, ' ', line);
        o->n_experts = number(&at, UINT16_MAX, ' ', line);
        o->per_token = number(&at, UINT16_MAX, ' ', line);
        o->reads = number(&at, 64, ' ', line);
        if (o->n_layers < 1 || o->n_experts < 1 || o->reads < 1)
            die("line 1: a model without layers or experts");
    }
    free(text);
    if (line == 0)
        die("no orders");
}

/* ---- a checkpoint of which every expert is the same hole ---- */

struct checkpoint {
    char path[64];
    struct shard_file file;
    struct tensor tensor;
    struct shards shards;
    struct model_shape shape;
    struct catalog catalog;
    struct expert_map *map;
    struct drives *drives;
};

static void make_checkpoint(struct checkpoint *c, const struct orders *o)
{
    size_t n = (size_t)o->n_layers * o->n_experts * N_PARTS;
    struct err err;

    *c = (struct checkpoint){ .path = "/tmp/colizig-replay-XXXXXX" };
    int fd = mkstemp(c->path);
    if (fd < 0 || ftruncate(fd, IO_ALIGN) < 0)
        die("%s: %s", c->path, strerror(errno));
    close(fd);
    c->file = (struct shard_file){ .path = c->path, .name = c->path, .size = IO_ALIGN };
    c->tensor = (struct tensor){ .name = "expert", .dtype = DTYPE_BF16, .n_dims = 2,
                                 .dims = { 1, 1 }, .size = 2 };
    c->shards = (struct shards){ .files = &c->file, .n_files = 1, .tensors = &c->tensor,
                                 .n_tensors = 1 };
    c->shape = (struct model_shape){ .n_layers = o->n_layers, .n_moe_layers = o->n_layers,
                                     .n_experts = o->n_experts };
    c->catalog = (struct catalog){ .shards = &c->shards, .shape = &c->shape };
    c->catalog.expert_tensors = calloc(n, sizeof *c->catalog.expert_tensors);
    c->catalog.expert_scales = calloc(n, sizeof *c->catalog.expert_scales);
    if (!c->catalog.expert_tensors || !c->catalog.expert_scales)
        die("no memory for %zu tensors", n);
    for (uint32_t i = 0; i < o->n_layers; i++) {
        c->shape.layer_is_moe[i] = true;
        c->catalog.moe_ordinal[i] = i;
    }
    for (size_t i = 0; i < n; i++)
        c->catalog.expert_tensors[i] = &c->tensor;
    int rc = expert_map_open(&c->map, &c->catalog, &err);
    if (rc == 0)
        rc = drives_open(&c->drives, &c->shards, false, &err);
    unlink(c->path);
    if (rc < 0)
        die("%s", err.text);
}

static void done_checkpoint(struct checkpoint *c)
{
    drives_close(c->drives);
    expert_map_close(c->map);
    free(c->catalog.expert_tensors);
    free(c->catalog.expert_scales);
}

/* ---- running them ---- */

static void compute_nothing(void *ctx, const struct expert_loan *loans, uint32_t n)
{
    (void)ctx;
    (void)loans;
    (void)n;
}

/* first: as the router would have grouped its rows. */
static void take_order(struct expert_store *s, const struct orders *o, const struct order *next,
                       uint32_t *first)
{
    const uint16_t *experts = o->experts + next->from;
    const struct moe_batches batches = {
        .first = first, .most_rows = moe_batch_rows(next->n_rows, o->per_token),
        .compute = compute_nothing,
    };
    struct expert_order *order;
    struct err err;

    memset(first, 0, (o->n_experts + 1ull) * sizeof *first);
    for (size_t i = 0; i < next->n; i++)
        first[experts[i] + 1] = o->picks[next->from + i];
    for (uint32_t e = 0; e < o->n_experts; e++)
        first[e + 1] += first[e];
    if (expert_store_order(s, &order, (uint16_t)next->layer, experts, next->n, &err) < 0 ||
        moe_take_all(order, &batches, &err) < 0)
        die("%s", err.text);
    expert_order_close(order);
}

static void replay(const struct checkpoint *c, const struct orders *o, uint32_t n_slots)
{
    uint64_t hits[N_KINDS] = { 0 }, misses[N_KINDS] = { 0 };
    uint32_t *first = grown(NULL, (o->n_experts + 1ull) * sizeof *first);
    struct expert_store_stats before = { 0 }, after;
    struct expert_store *s;
    struct io *io;
    struct err err;

    if (io_open(&io, IO_IN_TURN, o->reads * N_PARTS, &err) < 0)
        die("%s", err.text);
    const struct expert_store_options opt = {
        .map = c->map, .drives = c->drives, .io = io, .n_slots = n_slots,
        .experts_per_token = o->per_token, .reads_in_flight = o->reads,
    };
    if (expert_store_open(&s, &opt, &err) < 0)
        die("%s", err.text);
    for (size_t i = 0; i < o->n; i++) {
        take_order(s, o, &o->list[i], first);
        expert_store_stats(s, &after);
        hits[o->list[i].kind] += after.hits - before.hits;
        misses[o->list[i].kind] += after.misses - before.misses;
        before = after;
    }
    expert_store_close(s);
    io_close(io);
    free(first);
    printf("%" PRIu32, n_slots);
    for (uint32_t k = 0; k < N_KINDS; k++)
        printf(" %" PRIu64 " %" PRIu64, hits[k], misses[k]);
    putchar('\n');
}

int main(int argc, char **argv)
{
    struct checkpoint c;
    struct orders o;

    if (argc < 2)
        die("usage: replay_experts SLOTS... < orders");
    read_orders(&o);
    make_checkpoint(&c, &o);
    for (int i = 1; i < argc; i++) {
        char *at = argv[i];

        replay(&c, &o, number(&at, MAX_SLOTS, ' ', 0));
    }
    done_checkpoint(&c);
    free(o.list);
    free(o.experts);
    free(o.picks);
    if (fflush(stdout) == EOF)
        die("write: %s", strerror(errno));
    return 0;
}
