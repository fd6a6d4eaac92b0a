#include "formats/safetensors.h"

#include "formats/file.h"
#include "formats/json_scan.h"
#include "util/err.h"
#include "util/hash.h"
#include "util/shown.h"
#include "util/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The format's reference reader refuses longer headers, so no writer makes them. */
#define HEADER_MAX ((uint64_t)100000000)

enum { LENGTH_SIZE = 8 };

/* A header being read. Names are moved to the front of the header's own text as they
 * come: a name is shorter than the entry it came from, so writing stays behind reading,
 * and at the end the buffer shrinks to the names. */
struct reader {
    const char *path;
    char *text; /* owned until it becomes the names */
    uint64_t header_size, data_size;
    struct json_scan scan;
    struct tensor *tensors; /* owned */
    uint32_t n, cap;
    uint64_t names_size;
    bool metadata_seen;
    struct hash seen;
};

/* What the cursor found wrong, with its place. */
static int scan_error(const struct reader *r, const char *tensor, struct err *err)
{
    uint64_t at = LENGTH_SIZE + (uint64_t)(r->scan.at - r->scan.begin);

    if (!tensor)
        return err_set(err, ERR_FORMAT, "%s: header, byte %" PRIu64 ": %s",
                       shown_path(r->path).text, at, r->scan.fault);
    return err_set(err, ERR_FORMAT, "%s: tensor '%s': header, byte %" PRIu64 ": %s",
                   shown_path(r->path).text, shown_name(tensor).text, at, r->scan.fault);
}

static int tensor_error(const struct reader *r, const char *tensor, const char *what,
                        struct err *err)
{
    return err_set(err, ERR_FORMAT, "%s: tensor '%s': %s", shown_path(r->path).text,
                   shown_name(tensor).text, what);
}

/* "__metadata__": strings to strings. Nothing in it is used here. */
static int read_metadata(struct reader *r, struct err *err)
{
    struct json_scan *s = &r->scan;
    char *text;
    size_t size;

    if (r->metadata_seen)
        return err_set(err, ERR_FORMAT, "%s: __metadata__ is there twice",
                       shown_path(r->path).text);
    r->metadata_seen = true;
    if (json_scan_null(s))
        return 0;
    if (!json_scan_expect(s, '{'))
        return scan_error(r, "__metadata__", err);
    if (json_scan_take(s, '}'))
        return 0;
    do {
        if (!json_scan_string(s, &text, &size) || !json_scan_expect(s, ':') ||
            !json_scan_string(s, &text, &size))
            return scan_error(r, "__metadata__", err);
    } while (json_scan_more(s, '}'));
    return s->fault ? scan_error(r, "__metadata__", err) : 0;
}

static int read_dtype(struct reader *r, struct tensor *t, uint32_t *bits, struct err *err)
{
    char *name;
    size_t size;

    if (!json_scan_string(&r->scan, &name, &size))
        return scan_error(r, t->name, err);
    if (strlen(name) != size || !dtype_parse(&t->dtype, bits, name))
        return err_set(err, ERR_FORMAT, "%s: tensor '%s': unknown dtype '%.32s'",
                       shown_path(r->path).text, shown_name(t->name).text,
                       shown_name(name).text);
    return 0;
}

static int read_shape(struct reader *r, struct tensor *t, struct err *err)
{
    struct json_scan *s = &r->scan;

    if (!json_scan_expect(s, '['))
        return scan_error(r, t->name, err);
    if (json_scan_take(s, ']'))
        return 0;
    do {
        if (t->n_dims == TENSOR_MAX_DIMS)
            return tensor_error(r, t->name, "more than 8 dimensions", err);
        if (!json_scan_u64(s, &t->dims[t->n_dims++]))
            return scan_error(r, t->name, err);
    } while (json_scan_more(s, ']'));
    return s->fault ? scan_error(r, t->name, err) : 0;
}

static int read_offsets(struct reader *r, const struct tensor *t, uint64_t range[2],
                        struct err *err)
{
    struct json_scan *s = &r->scan;

    if (!json_scan_expect(s, '[') || !json_scan_u64(s, &range[0]))
        return scan_error(r, t->name, err);
    if (!json_scan_take(s, ','))
        return tensor_error(r, t->name, "data_offsets must be two numbers", err);
    if (!json_scan_u64(s, &range[1]))
        return scan_error(r, t->name, err);
    if (!json_scan_take(s, ']'))
        return tensor_error(r, t->name, "data_offsets must be two numbers", err);
    return 0;
}

/* Checks that the byte range holds exactly the shape and lies inside the data. */
static int check_range(const struct reader *r, struct tensor *t, uint32_t bits,
                       const uint64_t range[2], struct err *err)
{
    uint64_t need = 1;

    for (uint32_t i = 0; i < t->n_dims; i++)
        if (!size_mul(&need, need, t->dims[i]))
            return tensor_error(r, t->name, "its shape overflows 64 bits", err);
    if (!size_mul(&need, need, bits))
        return tensor_error(r, t->name, "its shape overflows 64 bits", err);
    if (need % 8)
        return tensor_error(r, t->name, "its shape is not a whole number of bytes", err);
    need /= 8;

    if (range[0] > range[1])
        return err_set(err, ERR_FORMAT, "%s: tensor '%s': begins at byte %" PRIu64
                       " of the data and ends at %" PRIu64, shown_path(r->path).text,
                       shown_name(t->name).text, range[0], range[1]);
    if (range[1] - range[0] != need)
        return err_set(err, ERR_FORMAT, "%s: tensor '%s': %" PRIu64 " bytes for a shape that "
                       "needs %" PRIu64, shown_path(r->path).text, shown_name(t->name).text,
                       range[1] - range[0], need);
    t->offset = range[0]; /* within the data until all is known */
    t->size = need;
    return 0;
}

static int read_tensor(struct reader *r, struct tensor *t, struct err *err)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    static const struct {
        const char *name;
        unsigned bit;
    } fields[] = { { "dtype", DTYPE }, { "shape", SHAPE }, { "data_offsets", OFFSETS } };
    struct json_scan *s = &r->scan;
    uint64_t range[2] = { 0, 0 };
    uint32_t bits = 0;
    unsigned seen = 0;

    if (!json_scan_expect(s, '{'))
        return scan_error(r, t->name, err);
    if (json_scan_take(s, '}'))
        return tensor_error(r, t->name, "dtype, shape and data_offsets are missing", err);
    do {
        char *key;
        size_t size;
        unsigned bit = 0;
        int rc;

        if (!json_scan_string(s, &key, &size) || !json_scan_expect(s, ':'))
            return scan_error(r, t->name, err);
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
            if (strlen(key) == size && strcmp(key, fields[i].name) == 0)
                bit = fields[i].bit;
        if (!bit) /* it may say that the bytes mean something else */
            return err_set(err, ERR_FORMAT, "%s: tensor '%s': unknown field '%.40s'",
                           shown_path(r->path).text, shown_name(t->name).text,
                           shown_name(key).text);
        if (seen & bit)
            return err_set(err, ERR_FORMAT, "%s: tensor '%s': '%s' is there twice",
                           shown_path(r->path).text, shown_name(t->name).text, key);
        seen |= bit;
        if (bit == DTYPE)
            rc = read_dtype(r, t, &bits, err);
        else
            rc = bit == SHAPE ? read_shape(r, t, err) : read_offsets(r, t, range, err);
        if (rc < 0)
            return -1;
    } while (json_scan_more(s, '}'));
    if (s->fault)
        return scan_error(r, t->name, err);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!(seen & fields[i].bit))
            return err_set(err, ERR_FORMAT, "%s: tensor '%s': '%s' is missing",
                           shown_path(r->path).text, shown_name(t->name).text, fields[i].name);
    return check_range(r, t, bits, range, err);
}

static struct tensor *next_tensor(struct reader *r, struct err *err)
{
    if (r->n == r->cap) {
        /* An entry is 60 bytes at the very least and usually 130. */
        uint32_t cap = r->cap ? r->cap * 2 : (uint32_t)(r->header_size / 128) + 16;
        struct tensor *more = realloc(r->tensors, cap * sizeof *more);
        if (!more) {
            err_set(err, ERR_NOMEM, "%u tensors of %s", cap, shown_path(r->path).text);
            return NULL;
        }
        r->tensors = more;
        r->cap = cap;
    }
    struct tensor *t = &r->tensors[r->n];
    *t = (struct tensor){ 0 };
    return t;
}

static int read_entry(struct reader *r, struct err *err)
{
    struct json_scan *s = &r->scan;
    char *name;
    size_t size;

    if (!json_scan_string(s, &name, &size))
        return scan_error(r, NULL, err);
    if (strlen(name) != size)
        return tensor_error(r, name, "a NUL in its name", err);
    if (!json_scan_expect(s, ':'))
        return scan_error(r, name, err);
    if (strcmp(name, "__metadata__") == 0)
        return read_metadata(r, err);

    struct tensor *t = next_tensor(r, err);
    if (!t)
        return -1;
    memmove(r->text + r->names_size, name, size + 1);
    t->name = r->text + r->names_size;
    int rc = hash_add(&r->seen, t->name, r->n, NULL, err);
    if (rc == 0)
        return tensor_error(r, t->name, "is there twice", err);
    if (rc < 0)
        return -1;
    r->names_size += size + 1;
    r->n++;
    return read_tensor(r, t, err);
}

static int read_header(struct reader *r, struct err *err)
{
    struct json_scan *s = &r->scan;

    if (r->text[0] != '{')
        return err_set(err, ERR_FORMAT, "%s: the header does not begin with '{': not a "
                       "safetensors file", shown_path(r->path).text);
    json_scan_init(s, r->text, r->header_size);
    json_scan_take(s, '{');
    if (!json_scan_take(s, '}')) {
        do {
            if (read_entry(r, err) < 0)
                return -1;
        } while (json_scan_more(s, '}'));
        if (s->fault)
            return scan_error(r, NULL, err);
    }
    if (json_scan_done(s))
        return 0;
    s->fault = "text behind the header's object";
    return scan_error(r, NULL, err);
}

static int by_offset(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;

    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->size < b->size ? -1 : a->size > b->size; /* empty ones first */
}

static void sort_by_offset(struct tensor *tensors, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) { /* writers keep them sorted */
        if (by_offset(&tensors[i - 1], &tensors[i]) > 0) {
            qsort(tensors, n, sizeof *tensors, by_offset);
            return;
        }
    }
}

/* Where the file would end by its own header. */
static uint64_t described_size(const struct reader *r)
{
    uint64_t end = 0, tensor_end;

    for (uint32_t i = 0; i < r->n; i++)
        if (size_add(&tensor_end, r->tensors[i].offset, r->tensors[i].size) && tensor_end > end)
            end = tensor_end;
    return LENGTH_SIZE + r->header_size + end;
}

/* The tensors must lie end to end and fill the data section. */
static int check_coverage(struct reader *r, struct err *err)
{
    uint64_t at = 0, data_start = LENGTH_SIZE + r->header_size, described = described_size(r);

    sort_by_offset(r->tensors, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        struct tensor *t = &r->tensors[i];
        if (t->offset != at)
            return err_set(err, ERR_FORMAT, "%s: tensor '%s': begins at byte %" PRIu64
                           " of the data, %s %" PRIu64, shown_path(r->path).text,
                           shown_name(t->name).text, t->offset,
                           t->offset < at ? "inside one that ends at" : "leaving a hole from",
                           at);
        if (!size_add(&at, t->offset, t->size))
            return tensor_error(r, t->name, "its end does not fit 64 bits", err);
        if (at > r->data_size)
            return err_set(err, ERR_FORMAT, "%s: truncated at tensor '%s': its header describes "
                           "%" PRIu64 " bytes, the file has %" PRIu64 ": download it again",
                           shown_path(r->path).text, shown_name(t->name).text, described,
                           data_start + r->data_size);
        t->offset += data_start;
    }
    if (at != r->data_size)
        return err_set(err, ERR_FORMAT, "%s: %" PRIu64 " bytes behind the last tensor belong to "
                       "none: the file should have %" PRIu64 " bytes and has %" PRIu64,
                       shown_path(r->path).text, r->data_size - at, data_start + at,
                       data_start + r->data_size);
    return 0;
}

/* The length word, checked against the file before anything is allocated. */
static int read_length(struct reader *r, int fd, uint64_t file_size, struct err *err)
{
    uint8_t start[64];
    uint64_t n_start = file_size < sizeof start ? file_size : sizeof start, length = 0;

    if (file_read_at(fd, r->path, start, n_start, 0, err) < 0)
        return -1;
    if (file_is_lfs_pointer(start, n_start))
        return file_lfs_error(r->path, err);
    if (file_size < LENGTH_SIZE)
        return err_set(err, ERR_FORMAT, "%s: %" PRIu64 " bytes are no safetensors file: download "
                       "it again", shown_path(r->path).text, file_size);
    for (int i = LENGTH_SIZE - 1; i >= 0; i--)
        length = length << 8 | start[i];
    if (length < 2)
        return err_set(err, ERR_FORMAT, "%s: a header of %" PRIu64 " bytes cannot be: not a "
                       "safetensors file", shown_path(r->path).text, length);
    if (length > HEADER_MAX)
        return err_set(err, ERR_FORMAT, "%s: a header of %" PRIu64 " bytes, the format allows "
                       "100000000: not a safetensors file", shown_path(r->path).text, length);
    if (length > file_size - LENGTH_SIZE)
        return err_set(err, ERR_FORMAT, "%s: truncated: the header alone needs %" PRIu64
                       " bytes, the file has %" PRIu64 ": download it again",
                       shown_path(r->path).text, length + LENGTH_SIZE, file_size);
    r->header_size = length;
    r->data_size = file_size - LENGTH_SIZE - length;
    return 0;
}

static int read_file(struct reader *r, int fd, uint64_t file_size, struct err *err)
{
    if (read_length(r, fd, file_size, err) < 0)
        return -1;
    r->text = malloc(r->header_size);
    if (!r->text)
        return err_set(err, ERR_NOMEM, "the header of %s", shown_path(r->path).text);
    if (file_read_at(fd, r->path, r->text, r->header_size, LENGTH_SIZE, err) < 0 ||
        hash_open(&r->seen, (uint32_t)(r->header_size / 128), err) < 0 ||
        read_header(r, err) < 0)
        return -1;
    return check_coverage(r, err);
}

/* Gives back what the arrays do not need, and the names' new place to the tensors. */
static void shrink(struct reader *r)
{
    uintptr_t before = (uintptr_t)r->text;
    char *names = realloc(r->text, r->names_size ? r->names_size : 1);

    if (names) {
        r->text = names;
        for (uint32_t i = 0; i < r->n; i++)
            r->tensors[i].name = names + ((uintptr_t)r->tensors[i].name - before);
    }
    struct tensor *tensors = realloc(r->tensors, (r->n ? r->n : 1) * sizeof *tensors);
    if (tensors)
        r->tensors = tensors;
}

int safetensors_open(struct safetensors *out, const char *path, struct err *err)
{
    struct reader r = { .path = path };
    uint64_t file_size;
    int fd;

    if (file_open(&fd, &file_size, path, err) < 0)
        return -1;
    int rc = read_file(&r, fd, file_size, err);
    close(fd);
    hash_close(&r.seen);
    if (rc < 0) {
        free(r.tensors);
        free(r.text);
        return -1;
    }
    shrink(&r);
    *out = (struct safetensors){
        .tensors = r.tensors, .n_tensors = r.n, .file_size = file_size, .names = r.text
    };
    return 0;
}

void safetensors_close(struct safetensors *s)
{
    free(s->tensors);
    free(s->names);
    *s = (struct safetensors){ 0 };
}
