#include "text/template_file.h"

#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_TEMPLATE = 1 << 20,
    MOST_CONFIG = 16 << 20, /* some list every added token */
};

/* The whole of a regular file. 1: it is there; 0: it is not. */
static int read_file(char **out, size_t *size, const char *path, size_t most, struct err *err)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &about) < 0) {
        err_errno(err, "%s", path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (!S_ISREG(about.st_mode) || about.st_size < 0 || (uint64_t)about.st_size > most) {
        close(fd);
        return err_set(err, ERR_FORMAT, "%s: no regular file of at most %zu bytes", path, most);
    }
    char *text = malloc((size_t)about.st_size + 1);
    while (text && n < (size_t)about.st_size) {
        ssize_t got = read(fd, text + n, (size_t)about.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    if (!text)
        return err_set(err, ERR_NOMEM, "%s", path);
    if (n < (size_t)about.st_size) {
        free(text);
        return err_set(err, ERR_IO, "%s: %zu of %lld bytes could be read", path, n,
                       (long long)about.st_size);
    }
    text[n] = '\0';
    *out = text;
    *size = n;
    return 1;
}

/* The file of that name in dir, if it is there. */
static int read_in(struct template_bytes *out, const char *dir, const char *name, size_t most,
                   struct err *err)
{
    char path[4096];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return err_set(err, ERR_INPUT, "the model's directory has too long a name");
    return read_file(&out->at, &out->size, path, most, err);
}

int template_files_read(struct template_files *out, const char *dir, const char *file,
                        struct err *err)
{
    struct template_files f = { 0 };
    int rc;

    if (file) {
        rc = read_file(&f.template.at, &f.template.size, file, MOST_TEMPLATE, err);
        if (rc == 0) {
            errno = ENOENT;
            rc = err_errno(err, "%s", file);
        }
    } else {
        rc = read_in(&f.template, dir, "chat_template.jinja", MOST_TEMPLATE, err);
    }
    if (rc < 0 ||
        (dir && (read_in(&f.tokenizer_config, dir, "tokenizer_config.json", MOST_CONFIG, err) < 0 ||
                 read_in(&f.config, dir, "config.json", MOST_CONFIG, err) < 0))) {
        template_files_done(&f);
        return -1;
    }
    *out = f;
    return 0;
}

void template_files_done(struct template_files *f)
{
    free(f->template.at);
    free(f->tokenizer_config.at);
    free(f->config.at);
    *f = (struct template_files){ 0 };
}

/* ---- looking ---- */

/* The template in a list of {"name", "template"}. */
static const json_t *named_default(const json_t *list)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_object_get(one, "template");
    }
    return NULL;
}

static int copy_text(char **out, size_t *size, const char *text, size_t n, struct err *err)
{
    *out = malloc(n + 1);
    if (!*out)
        return err_set(err, ERR_NOMEM, "chat template");
    memcpy(*out, text, n);
    (*out)[n] = '\0';
    if (size)
        *size = n;
    return 0;
}

static int take_template(struct template_text *t, const json_t *root, struct err *err)
{
    const json_t *v = json_object_get(root, "chat_template");

    if (json_is_array(v))
        v = named_default(v);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v) || json_string_length(v) > MOST_TEMPLATE)
        return err_set(err, ERR_FORMAT, "tokenizer_config.json: chat_template is no text of at most "
                                        "%d bytes", MOST_TEMPLATE);
    return copy_text(&t->template, &t->size, json_string_value(v), json_string_length(v), err);
}

/* A text, or an added token's object with its "content". */
static int take_token(char **out, const json_t *root, const char *key, struct err *err)
{
    const json_t *v = json_object_get(root, key);

    if (json_is_object(v))
        v = json_object_get(v, "content");
    return json_is_string(v) ? copy_text(out, NULL, json_string_value(v),
                                         strlen(json_string_value(v)), err)
                             : 0;
}

/* What is not JSON matters only where a template is wanted from it. */
static int look_at_tokenizer_config(struct template_text *t, const struct template_bytes *b,
                                    struct err *err)
{
    json_error_t at;
    json_t *root = json_loadb(b->at, b->size, JSON_REJECT_DUPLICATES, &at);
    int rc = 0;

    if (!root && t->template)
        return 0;
    if (!root)
        return err_set(err, ERR_FORMAT, "tokenizer_config.json:%d:%d: %s", at.line, at.column,
                       at.text);
    if (!t->template)
        rc = take_template(t, root, err);
    if (rc == 0 && (take_token(&t->bos_token, root, "bos_token", err) < 0 ||
                    take_token(&t->eos_token, root, "eos_token", err) < 0))
        rc = -1;
    json_decref(root);
    return rc;
}

static void look_at_config(struct template_text *t, const struct template_bytes *b)
{
    json_t *root = json_loadb(b->at, b->size, 0, NULL);
    const char *family = json_string_value(json_object_get(root, "model_type"));

    if (family)
        snprintf(t->family, sizeof t->family, "%s", family);
    json_decref(root);
}

int template_files_look(struct template_text *out, const struct template_files *f,
                        struct err *err)
{
    struct template_text t = { 0 };

    if ((f->template.at && copy_text(&t.template, &t.size, f->template.at, f->template.size,
                                     err) < 0) ||
        (f->tokenizer_config.at && look_at_tokenizer_config(&t, &f->tokenizer_config, err) < 0)) {
        template_text_done(&t);
        return -1;
    }
    if (f->config.at)
        look_at_config(&t, &f->config);
    *out = t;
    return 0;
}

void template_text_done(struct template_text *t)
{
    free(t->template);
    free(t->bos_token);
    free(t->eos_token);
    *t = (struct template_text){ 0 };
}
