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

/* 1: found; 0: the file has none. */
static int from_config(char **source, size_t *size, const char *path, struct err *err)
{
    char *text;
    size_t n;
    json_error_t at;
    int rc = read_file(&text, &n, path, MOST_CONFIG, err);

    if (rc <= 0)
        return rc;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!root)
        return err_set(err, ERR_FORMAT, "%s:%d:%d: %s", path, at.line, at.column, at.text);
    const json_t *v = json_object_get(root, "chat_template");
    if (json_is_array(v))
        v = named_default(v);
    if (json_is_string(v) && json_string_length(v) <= MOST_TEMPLATE) {
        *size = json_string_length(v);
        *source = malloc(*size + 1);
        if (*source)
            memcpy(*source, json_string_value(v), *size + 1);
        rc = *source ? 1 : err_set(err, ERR_NOMEM, "%s", path);
    } else if (v && !json_is_null(v)) {
        rc = err_set(err, ERR_FORMAT, "%s: chat_template is no text of at most %d bytes", path,
                     MOST_TEMPLATE);
    } else {
        rc = 0;
    }
    json_decref(root);
    return rc;
}

int template_file_read(char **source, size_t *size, const char *path, struct err *err)
{
    int rc = read_file(source, size, path, MOST_TEMPLATE, err);

    if (rc == 0) {
        errno = ENOENT;
        return err_errno(err, "%s", path);
    }
    return rc < 0 ? -1 : 0;
}

int template_file_find(char **source, size_t *size, const char *dir, struct err *err)
{
    char path[4096];
    int rc;

    *source = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/chat_template.jinja", dir) >= sizeof path)
        return err_set(err, ERR_INPUT, "the model's directory has too long a name");
    rc = read_file(source, size, path, MOST_TEMPLATE, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if ((size_t)snprintf(path, sizeof path, "%s/tokenizer_config.json", dir) >= sizeof path)
        return err_set(err, ERR_INPUT, "the model's directory has too long a name");
    return from_config(source, size, path, err) < 0 ? -1 : 0;
}
