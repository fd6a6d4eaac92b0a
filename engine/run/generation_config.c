#include "run/generation_config.h"

#include "colizig.h"
#include "formats/json.h"
#include "util/err.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

enum { MAX_SIZE = 1 << 20 };

static int add_stop_ids(uint32_t *ids, uint32_t *n, const struct json *j, struct err *err)
{
    uint32_t more[GENERATION_STOP_IDS], n_more;

    if (json_u32_list(more, &n_more, GENERATION_STOP_IDS, j, "eos_token_id", err) < 0)
        return -1;
    for (uint32_t i = 0; i < n_more; i++) {
        bool there = false;
        for (uint32_t k = 0; k < *n; k++)
            there |= ids[k] == more[i];
        if (there)
            continue;
        if (*n == GENERATION_STOP_IDS)
            return err_set(err, ERR_FORMAT, "%s: 'eos_token_id': more than %u stop ids together "
                           "with config.json", j->name, (unsigned)GENERATION_STOP_IDS);
        ids[(*n)++] = more[i];
    }
    return 0;
}

static int read_float(float *out, const struct json *j, const char *key, double absent,
                      double min, double max, struct err *err)
{
    double x;

    if (json_f64_or(&x, j, key, absent, min, max, err) < 0)
        return -1;
    *out = (float)x;
    return 0;
}

static int read_sampling(struct cz_sampling *s, const struct json *j, struct err *err)
{
    bool sample;

    if (json_bool_or(&sample, j, "do_sample", true, err) < 0 ||
        read_float(&s->temperature, j, "temperature", 1.0, 0.0, 100.0, err) < 0 ||
        read_float(&s->top_p, j, "top_p", 1.0, 0.0, 1.0, err) < 0 ||
        read_float(&s->min_p, j, "min_p", 0.0, 0.0, 1.0, err) < 0 ||
        read_float(&s->repetition_penalty, j, "repetition_penalty", 1.0, 0.01, 100.0, err) < 0 ||
        json_u32_or(&s->top_k, j, "top_k", 0, 0, INT32_MAX, err) < 0)
        return -1;
    if (!sample)
        s->temperature = 0.0f;
    return 0;
}

int generation_config_read(struct cz_sampling *defaults, uint32_t *stop_ids, uint32_t *n,
                           const char *model_dir, const struct json *config, struct err *err)
{
    struct cz_sampling s = { .temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f };
    uint32_t n_ids = 0;
    char path[PATH_MAX];
    struct stat st;
    struct json j;
    int got = snprintf(path, sizeof path, "%s/generation_config.json", model_dir);

    if (got < 0 || (size_t)got >= sizeof path)
        return err_set(err, ERR_INPUT, "the path of the model is too long");
    /* Not stat: a link to nothing is an unfinished download, not a missing file. */
    if (lstat(path, &st) == 0) {
        if (json_open(&j, path, MAX_SIZE, err) < 0)
            return -1;
        int rc = read_sampling(&s, &j, err);
        if (rc == 0)
            rc = add_stop_ids(stop_ids, &n_ids, &j, err);
        json_close(&j);
        if (rc < 0)
            return -1;
    } else if (errno != ENOENT) {
        return err_errno(err, "%s", path);
    }
    if (add_stop_ids(stop_ids, &n_ids, config, err) < 0)
        return -1;
    *defaults = s;
    *n = n_ids;
    return 0;
}
