#include "formats/shard_index.h"

#include "formats/file.h"
#include "formats/json_scan.h"
#include "util/err.h"
#include "util/hash.h"
#include "util/shown.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* As much as the format allows the headers that it repeats. */
#define INDEX_MAX ((uint64_t)100000000)

struct reader {
    const char *path;
    struct json_scan scan;
    struct shard_index *out;
    struct hash files;
    uint32_t entry_cap, file_cap;
    bool metadata_seen, map_seen;
};

static int scan_error(const struct reader *r, struct err *err)
{
    return err_set(err, ERR_FORMAT, "%s: byte %" PRIu64 ": %s", shown_path(r->path).text,
                   (uint64_t)(r->scan.at - r->scan.begin), r->scan.fault);
}

/* The array with room for one more item, or NULL with *err filled (the array stays). */
static void *grown(void *array, uint32_t *cap, uint32_t n, size_t item, struct err *err)
{
    uint32_t next = *cap ? *cap * 2 : 64;

    if (n < *cap)
        return array;
    void *more = realloc(array, next * item);
    if (more)
        *cap = next;
    else
        err_set(err, ERR_NOMEM, "%u entries of a checkpoint's index", next);
    return more;
}

static bool is_plain_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

static int file_number(struct reader *r, const char *name, uint32_t *out, struct err *err)
{
    struct shard_index *x = r->out;
    int rc = hash_add(&r->files, name, x->n_files, out, err);

    if (rc <= 0)
        return rc;
    const char **files = grown(x->files, &r->file_cap, x->n_files, sizeof *files, err);
    if (!files)
        return -1;
    x->files = files;
    *out = x->n_files;
    x->files[x->n_files++] = name;
    return 0;
}

static int read_entry(struct reader *r, struct err *err)
{
    struct shard_index *x = r->out;
    char *tensor, *file;
    size_t tensor_size, file_size;

    if (!json_scan_string(&r->scan, &tensor, &tensor_size) || !json_scan_expect(&r->scan, ':') ||
        !json_scan_string(&r->scan, &file, &file_size))
        return scan_error(r, err);
    if (strlen(tensor) != tensor_size || strlen(file) != file_size || !is_plain_name(file))
        return err_set(err, ERR_FORMAT, "%s: tensor '%s' is said to be in '%s': must be the plain "
                       "name of a file beside the index", shown_path(r->path).text,
                       shown_name(tensor).text, shown_name(file).text);
    struct shard_index_entry *e =
        grown(x->entries, &r->entry_cap, x->n_entries, sizeof *e, err);
    if (!e)
        return -1;
    x->entries = e;
    e += x->n_entries;
    e->tensor = tensor;
    if (file_number(r, file, &e->file, err) < 0)
        return -1;
    x->n_entries++;
    return 0;
}

static int read_map(struct reader *r, struct err *err)
{
    if (r->map_seen)
        return err_set(err, ERR_FORMAT, "%s: weight_map is there twice",
                       shown_path(r->path).text);
    r->map_seen = true;
    if (!json_scan_expect(&r->scan, '{'))
        return scan_error(r, err);
    if (json_scan_take(&r->scan, '}'))
        return 0;
    do {
        if (read_entry(r, err) < 0)
            return -1;
    } while (json_scan_more(&r->scan, '}'));
    return r->scan.fault ? scan_error(r, err) : 0;
}

/* Some writers put a float or text here: only a whole number is a promise to check. */
static bool read_total(struct reader *r)
{
    struct json_scan *s = &r->scan;
    char *before = s->at;

    r->out->has_total = json_scan_u64(s, &r->out->total_size);
    if (r->out->has_total)
        return true;
    s->at = before;
    return json_scan_skip(s);
}

static int read_metadata(struct reader *r, struct err *err)
{
    struct json_scan *s = &r->scan;
    char *key;
    size_t size;

    if (r->metadata_seen)
        return err_set(err, ERR_FORMAT, "%s: metadata is there twice", shown_path(r->path).text);
    r->metadata_seen = true;
    if (json_scan_null(s))
        return 0;
    if (!json_scan_expect(s, '{'))
        return scan_error(r, err);
    if (json_scan_take(s, '}'))
        return 0;
    do {
        if (!json_scan_string(s, &key, &size) || !json_scan_expect(s, ':'))
            return scan_error(r, err);
        if (!(strcmp(key, "total_size") == 0 ? read_total(r) : json_scan_skip(s)))
            return scan_error(r, err);
    } while (json_scan_more(s, '}'));
    return s->fault ? scan_error(r, err) : 0;
}

static int read_root(struct reader *r, struct err *err)
{
    struct json_scan *s = &r->scan;
    char *key;
    size_t size;

    if (!json_scan_expect(s, '{'))
        return scan_error(r, err);
    if (!json_scan_take(s, '}')) {
        do {
            int rc = 0;
            if (!json_scan_string(s, &key, &size) || !json_scan_expect(s, ':'))
                return scan_error(r, err);
            if (strcmp(key, "weight_map") == 0)
                rc = read_map(r, err);
            else if (strcmp(key, "metadata") == 0)
                rc = read_metadata(r, err);
            else if (!json_scan_skip(s))
                rc = scan_error(r, err);
            if (rc < 0)
                return -1;
        } while (json_scan_more(s, '}'));
        if (s->fault)
            return scan_error(r, err);
    }
    if (!json_scan_done(s)) {
        s->fault = "text behind the object";
        return scan_error(r, err);
    }
    if (r->out->n_entries == 0)
        return err_set(err, ERR_FORMAT, "%s: weight_map lists no tensor: download it again",
                       shown_path(r->path).text);
    return 0;
}

int shard_index_open(struct shard_index *out, const char *path, struct err *err)
{
    struct shard_index x = { 0 };
    struct reader r = { .path = path, .out = &x };
    uint64_t size;

    if (file_read_all(&x.text, &size, path, INDEX_MAX, err) < 0)
        return -1;
    json_scan_init(&r.scan, x.text, size);
    int rc = hash_open(&r.files, 256, err);
    if (rc == 0)
        rc = read_root(&r, err);
    hash_close(&r.files);
    if (rc < 0) {
        shard_index_close(&x);
        return -1;
    }
    *out = x;
    return 0;
}

void shard_index_close(struct shard_index *x)
{
    free(x->text);
    free(x->entries);
    free(x->files);
    *x = (struct shard_index){ 0 };
}
