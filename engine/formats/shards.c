#include "formats/shards.h"

#include "formats/file.h"
#include "formats/shard_index.h"
#include "util/err.h"
#include "util/hash.h"
#include "util/shown.h"
#include "util/size.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

/* More shards than any checkpoint has; bounds what a crafted directory can ask for. */
enum { MAX_FILES = 100000 };

/* The names in the model's directory that matter here, sorted. */
struct listing {
    const char *dir; /* borrowed */
    char **names;    /* owned; model*.safetensors */
    uint32_t n, cap;
    bool has_index;
};

static void listing_close(struct listing *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
}

static bool is_shard_name(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t n = strlen(name);

    if (strcmp(name, single_name) == 0)
        return true;
    return strncmp(name, "model-", 6) == 0 && n > sizeof suffix - 1 &&
           strcmp(name + n - (sizeof suffix - 1), suffix) == 0;
}

static int listing_add(struct listing *l, const char *name, struct err *err)
{
    if (l->n == MAX_FILES)
        return err_set(err, ERR_FORMAT, "%s: more than %u shards", shown_path(l->dir).text,
                       (unsigned)MAX_FILES);
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 64;
        char **more = realloc(l->names, cap * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "the names of %u shards", cap);
        l->names = more;
        l->cap = cap;
    }
    l->names[l->n] = strdup(name);
    if (!l->names[l->n])
        return err_set(err, ERR_NOMEM, "the names of %u shards", l->n);
    l->n++;
    return 0;
}

static int by_text(const void *left, const void *right)
{
    char *const *a = left, *const *b = right;

    return strcmp(*a, *b);
}

static int listing_open(struct listing *out, const char *dir, struct err *err)
{
    struct listing l = { .dir = dir };
    const struct dirent *entry;
    int rc = 0;
    DIR *d = opendir(dir);

    if (!d && errno == ELOOP)
        return err_set(err, ERR_FORMAT, "model directory %s: %s", shown_path(dir).text,
                       strerror(errno));
    if (!d && (errno == ENOENT || file_leads_nowhere(errno)))
        return err_set(err, ERR_INPUT, "model directory %s: %s", shown_path(dir).text,
                       strerror(errno));
    if (!d)
        return err_errno(err, "model directory %s", shown_path(dir).text);
    for (;;) {
        errno = 0;
        entry = readdir(d);
        if (!entry && errno)
            rc = err_errno(err, "list %s", shown_path(dir).text);
        if (!entry || rc < 0)
            break;
        if (strcmp(entry->d_name, index_name) == 0)
            l.has_index = true;
        else if (is_shard_name(entry->d_name))
            rc = listing_add(&l, entry->d_name, err);
    }
    closedir(d);
    if (rc < 0) {
        listing_close(&l);
        return -1;
    }
    if (l.n > 1)
        qsort(l.names, l.n, sizeof *l.names, by_text);
    *out = l;
    return 0;
}

static bool listed(const struct listing *l, const char *name)
{
    return l->n && bsearch(&name, l->names, l->n, sizeof *l->names, by_text) != NULL;
}

static void numbered_name(char *out, size_t cap, uint32_t number, uint32_t total, int width)
{
    snprintf(out, cap, "model-%0*u-of-%0*u.safetensors", width, number, width, total);
}

/* "model-00002-of-00003.safetensors": 2, 3 and how many digits. */
static bool parse_numbered(const char *name, uint32_t *number, uint32_t *total, int *width)
{
    int first, second;
    char again[64];

    if (sscanf(name, "model-%n%9u%n-of-%9u", &first, number, &second, total) != 2)
        return false;
    *width = second - first;
    numbered_name(again, sizeof again, *number, *total, *width); /* scanf is lenient */
    return strcmp(name, again) == 0;
}

static int missing(const struct listing *l, const char *name, const char *why, struct err *err)
{
    return err_set(err, ERR_FORMAT, "%s: missing %s (%s): download it again",
                   shown_path(l->dir).text, shown_name(name).text, why);
}

/* Shards numbered i of n must be there from 1 to n. names are sorted, and names of one
 * width sort by number. */
static int check_numbers(const struct listing *l, struct err *err)
{
    uint32_t number, total, all = 0, expect = 1;
    const char *first = NULL;
    char name[64], why[64];
    int width = 0, w;

    for (uint32_t i = 0; i < l->n; i++) {
        if (!parse_numbered(l->names[i], &number, &total, &w))
            continue;
        if (!first) {
            first = l->names[i];
            all = total;
            width = w;
        }
        if (total != all || w != width)
            return err_set(err, ERR_FORMAT, "%s: %s and %s belong to different sets of shards: "
                           "keep one set", shown_path(l->dir).text, first, l->names[i]);
        if (number < expect || number > all)
            return err_set(err, ERR_FORMAT, "%s: %s does not fit the numbers 1 to %u of its set",
                           shown_path(l->dir).text, l->names[i], all);
        if (number > expect)
            break;
        expect++;
    }
    if (!first || expect > all)
        return 0;
    numbered_name(name, sizeof name, expect, all, width);
    snprintf(why, sizeof why, "shards are numbered 1 to %u", all);
    return missing(l, name, why, err);
}

/* Which files make up the checkpoint, when no index says so. */
static int choose_unindexed(const struct listing *l, struct err *err)
{
    uint32_t number, total;
    int width;

    if (l->n == 0)
        return err_set(err, ERR_FORMAT, "%s: no weights: there is neither %s nor %s nor "
                       "model-*-of-*.safetensors", shown_path(l->dir).text, single_name,
                       index_name);
    if (l->n == 1 && strcmp(l->names[0], single_name) == 0)
        return 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (!parse_numbered(l->names[i], &number, &total, &width))
            return err_set(err, ERR_FORMAT, "%s: %s beside other shards and no %s to say what "
                           "belongs together: remove what is stray or download the index",
                           shown_path(l->dir).text, shown_name(l->names[i]).text, index_name);
    return check_numbers(l, err);
}

static int check_indexed_files(const struct listing *l, const struct shard_index *x,
                               struct err *err)
{
    struct hash wanted = { 0 };
    uint32_t place;
    int rc = hash_open(&wanted, x->n_files, err);

    for (uint32_t i = 0; rc >= 0 && i < x->n_files; i++) {
        rc = hash_add(&wanted, x->files[i], i, NULL, err);
        if (rc >= 0 && is_shard_name(x->files[i]) && !listed(l, x->files[i]))
            rc = missing(l, x->files[i], "listed in model.safetensors.index.json", err);
    }
    for (uint32_t i = 0; rc >= 0 && i < l->n; i++)
        if (!hash_find(&wanted, l->names[i], &place))
            rc = err_set(err, ERR_FORMAT, "%s: %s is not listed in %s: a stray shard of another "
                         "download? Remove it or get the index that belongs to it",
                         shown_path(l->dir).text, shown_name(l->names[i]).text, index_name);
    hash_close(&wanted);
    /* All listed names are in the index and the other way round by now. */
    return rc < 0 ? -1 : check_numbers(l, err);
}

/* Where a file really lies: caches keep shards as symbolic links into blobs. */
static int resolve(char **out, char path[PATH_MAX], const struct listing *l, const char *name,
                   struct err *err)
{
    struct stat st;
    int n = snprintf(path, PATH_MAX, "%s/%s", l->dir, name);

    if (strlen(name) > NAME_MAX)
        return err_set(err, ERR_FORMAT, "%s names a shard '%s' of %zu bytes: no file is called so",
                       index_name, shown_name(name).text, strlen(name));
    if (n < 0 || n >= PATH_MAX)
        return err_set(err, ERR_INPUT, "%s: the path is too long", shown_path(l->dir).text);
    *out = realpath(path, NULL);
    if (*out)
        return 0;
    if (errno == ENOENT && lstat(path, &st) == 0)
        return missing(l, name, "it is a link to a file that is not there", err);
    if (errno == ENOENT)
        return missing(l, name, "listed in model.safetensors.index.json", err);
    if (file_leads_nowhere(errno))
        return err_set(err, ERR_FORMAT, "%s: %s", shown_path(path).text, strerror(errno));
    return err_errno(err, "resolve %s", shown_path(path).text);
}

static int take_tensors(struct shards *s, const struct safetensors *one, uint32_t file,
                        uint32_t *cap, struct err *err)
{
    if (one->n_tensors > *cap - s->n_tensors) {
        /* Growth by half bounds what is copied. */
        uint64_t want = (uint64_t)s->n_tensors + one->n_tensors + s->n_tensors / 2;
        struct tensor *more =
            want <= UINT32_MAX ? realloc(s->tensors, want * sizeof *more) : NULL;
        if (!more)
            return err_set(err, ERR_NOMEM, "%" PRIu64 " tensors of a checkpoint", want);
        s->tensors = more;
        *cap = (uint32_t)want;
    }
    for (uint32_t i = 0; i < one->n_tensors; i++) {
        s->tensors[s->n_tensors] = one->tensors[i];
        s->tensors[s->n_tensors++].file = file;
    }
    return 0;
}

/* Opens one file: its real path, its header, its tensors behind those that are there. */
static int add_file(struct shards *s, const struct listing *l, const char *name, uint32_t *cap,
                    struct err *err)
{
    uint32_t file = s->n_files++; /* counted first: shards_close frees what is there */
    struct shard_file *f = &s->files[file];
    struct safetensors one;
    char path[PATH_MAX];

    f->name = strdup(name);
    if (!f->name)
        return err_set(err, ERR_NOMEM, "the name of a shard");
    if (resolve(&f->path, path, l, name, err) < 0 || safetensors_open(&one, path, err) < 0)
        return -1;
    int rc = take_tensors(s, &one, file, cap, err);
    f->size = one.file_size;
    s->names[file] = one.names; /* the tensors' names stay where they are */
    one.names = NULL;
    safetensors_close(&one);
    return rc;
}

static int open_files(struct shards *s, const struct listing *l, const char *const *names,
                      uint32_t n, struct err *err)
{
    uint32_t cap = 0;

    s->files = calloc(n, sizeof *s->files);
    s->names = calloc(n, sizeof *s->names);
    if (!s->files || !s->names)
        return err_set(err, ERR_NOMEM, "%u shards", n);
    for (uint32_t i = 0; i < n; i++)
        if (add_file(s, l, names[i], &cap, err) < 0)
            return -1;
    struct tensor *fit = realloc(s->tensors, (s->n_tensors ? s->n_tensors : 1) * sizeof *fit);
    if (fit)
        s->tensors = fit;
    return 0;
}

static int index_names(struct shards *s, const struct listing *l, struct err *err)
{
    s->hash = calloc(1, sizeof *s->hash);
    if (!s->hash)
        return err_set(err, ERR_NOMEM, "a table of names");
    if (hash_open(s->hash, s->n_tensors, err) < 0)
        return -1;
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        const struct tensor *t = &s->tensors[i];
        uint32_t there;
        int rc = hash_add(s->hash, t->name, i, &there, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            return err_set(err, ERR_FORMAT, "%s: tensor '%s' is both in %s and in %s: a mix of two "
                           "downloads? Download it again", shown_path(l->dir).text,
                           shown_name(t->name).text, s->files[s->tensors[there].file].name,
                           s->files[t->file].name);
    }
    return 0;
}

/* Every entry of the index is in the header it points to, and every tensor in the index. */
static int check_entries(const struct shards *s, const struct listing *l,
                         const struct shard_index *x, bool *in_index, struct err *err)
{
    for (uint32_t i = 0; i < x->n_entries; i++) {
        const struct shard_index_entry *e = &x->entries[i];
        uint32_t at = 0;
        if (!hash_find(s->hash, e->tensor, &at) || at >= s->n_tensors || s->tensors[at].file != e->file)
            return err_set(err, ERR_FORMAT, "%s: %s lists tensor '%s' in %s, which does not hold "
                           "it: download both again", shown_path(l->dir).text, index_name,
                           shown_name(e->tensor).text, shown_name(x->files[e->file]).text);
        if (in_index[at])
            return err_set(err, ERR_FORMAT, "%s: %s lists tensor '%s' twice",
                           shown_path(l->dir).text, index_name, shown_name(e->tensor).text);
        in_index[at] = true;
    }
    for (uint32_t i = 0; i < s->n_tensors; i++)
        if (!in_index[i])
            return err_set(err, ERR_FORMAT, "%s: tensor '%s' of %s is not listed in %s: download "
                           "both again", shown_path(l->dir).text,
                           shown_name(s->tensors[i].name).text,
                           s->files[s->tensors[i].file].name, index_name);
    return 0;
}

static int check_index(const struct shards *s, const struct listing *l,
                       const struct shard_index *x, struct err *err)
{
    uint64_t sum = 0;
    bool *in_index = calloc(s->n_tensors ? s->n_tensors : 1, sizeof *in_index);

    if (!in_index)
        return err_set(err, ERR_NOMEM, "%u names of a checkpoint's index", s->n_tensors);
    int rc = check_entries(s, l, x, in_index, err);
    free(in_index);
    if (rc < 0)
        return -1;
    for (uint32_t i = 0; i < s->n_tensors; i++)
        if (!size_add(&sum, sum, s->tensors[i].size))
            return err_set(err, ERR_FORMAT, "%s: its shards' sizes overflow 64 bits",
                           shown_path(l->dir).text);
    if (x->has_total && x->total_size != sum)
        return err_set(err, ERR_FORMAT, "%s: %s says %" PRIu64 " bytes in all (total_size), the "
                       "shards hold %" PRIu64 ": download both again", shown_path(l->dir).text,
                       index_name, x->total_size, sum);
    return 0;
}

static int open_indexed(struct shards *s, const struct listing *l, struct err *err)
{
    struct shard_index x = { 0 };
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", l->dir, index_name);

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, ERR_INPUT, "%s: the path is too long", shown_path(l->dir).text);
    if (shard_index_open(&x, path, err) < 0)
        return -1;
    int rc = check_indexed_files(l, &x, err);
    if (rc == 0)
        rc = open_files(s, l, x.files, x.n_files, err);
    if (rc == 0)
        rc = index_names(s, l, err);
    if (rc == 0)
        rc = check_index(s, l, &x, err);
    shard_index_close(&x);
    return rc;
}

static int open_unindexed(struct shards *s, const struct listing *l, struct err *err)
{
    if (choose_unindexed(l, err) < 0 ||
        open_files(s, l, (const char *const *)l->names, l->n, err) < 0)
        return -1;
    return index_names(s, l, err);
}

int shards_present(const char *model_dir, struct err *err)
{
    struct listing l;

    if (listing_open(&l, model_dir, err) < 0)
        return -1;
    int present = l.has_index || l.n > 0;
    listing_close(&l);
    return present;
}

int shards_open(struct shards **out, const char *model_dir, struct err *err)
{
    struct shards *s;
    struct listing l;

    if (listing_open(&l, model_dir, err) < 0)
        return -1;
    s = calloc(1, sizeof *s);
    int rc = s ? 0 : err_set(err, ERR_NOMEM, "the shards of a checkpoint");
    if (rc == 0)
        rc = l.has_index ? open_indexed(s, &l, err) : open_unindexed(s, &l, err);
    listing_close(&l);
    if (rc < 0) {
        shards_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

void shards_close(struct shards *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_files; i++) {
        free(s->files[i].path);
        free(s->files[i].name);
        free(s->names[i]);
    }
    if (s->hash)
        hash_close(s->hash);
    free(s->hash);
    free(s->files);
    free(s->names);
    free(s->tensors);
    free(s);
}

const struct tensor *shards_find(const struct shards *s, const char *name)
{
    uint32_t at;

    return hash_find(s->hash, name, &at) ? &s->tensors[at] : NULL;
}
