#include "daemon/conf/options.h"

#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char default_config[] = "/etc/colizig/colizigd.yaml";

const char options_help[] =
    "usage: colizigd --model DIR [--ram SIZE] [--listen ADDRESS:PORT] [...]\n"
    "       colizigd --config FILE [...]\n"
    "\n"
    "Serves one mixture-of-experts model over an OpenAI-compatible HTTP API.\n"
    "\n"
    "  --config FILE      settings (default: /etc/colizig/colizigd.yaml, if there)\n"
    "  --model DIR        the checkpoint: config.json, tokenizer.json, *.safetensors\n"
    "  --ram SIZE         memory for the whole service: 8GiB, 512MiB, auto\n"
    "  --listen ADDR      127.0.0.1:8080; may be given several times\n"
    "  --workers N        HTTP processes\n"
    "  --context N        tokens a conversation may hold, or auto\n"
    "  --threads N        compute threads, or auto\n"
    "  --kernels NAME     auto, scalar, avx2, avx512\n"
    "  --log-level NAME   err, warning, notice, info, debug\n"
    "  --set KEY=VALUE    any setting of the file: --set engine.queue=64\n"
    "  --insecure-no-auth listen beyond this machine without asking for a key\n"
    "  --check-config     check the settings, print the memory plan and exit\n"
    "  --version          print the version and exit\n"
    "  --help             print this and exit\n"
    "\n"
    "Exit status: 0 fine, 1 failure, 2 usage or config, 3 bad checkpoint, 4 budget.\n";

static const struct {
    const char *flag, *key;
} settings[] = {
    { "--model", "model.dir" },       { "--ram", "memory.ram" },
    { "--listen", "http.listen" },    { "--workers", "http.workers" },
    { "--context", "engine.context" }, { "--threads", "engine.threads" },
    { "--kernels", "engine.kernels" }, { "--log-level", "log.level" },
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static int parse_number(uint32_t *out, const char *flag, const char *value, struct err *err)
{
    char *end;

    errno = 0;
    unsigned long n = strtoul(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end || errno || n > CONF_MAX_WORKERS)
        return err_set(err, ERR_INPUT, "%s: '%.40s' is no number in range", flag, value);
    *out = (uint32_t)n;
    return 0;
}

static int parse_role(struct options *o, const char *value, struct err *err)
{
    static const char *const roles[] = { "supervisor", "worker", "engine", "check" };

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(value, roles[i]) == 0) {
            o->role = (enum options_role)i;
            return 0;
        }
    }
    return err_set(err, ERR_INPUT, "--role: '%.40s' is no role", value);
}

/* Keys are shorter; conf_set says which it does not know. */
enum { KEY_SIZE = 128 };

static bool same_key(const struct options *o, uint32_t i, const char *key, size_t size)
{
    return o->settings[i].key_size == size && memcmp(o->settings[i].key, key, size) == 0;
}

static int add_setting(struct options *o, const char *flag, const char *key, size_t key_size,
                       const char *value, struct err *err)
{
    bool more = false;

    if (o->n_settings == OPTIONS_MAX_SETTINGS)
        return err_set(err, ERR_INPUT, "more than %d settings on the command line",
                       OPTIONS_MAX_SETTINGS);
    for (uint32_t i = 0; i < o->n_settings; i++)
        more = more || same_key(o, i, key, key_size);
    o->settings[o->n_settings].flag = flag;
    o->settings[o->n_settings].key = key;
    o->settings[o->n_settings].key_size = key_size;
    o->settings[o->n_settings].value = value;
    o->settings[o->n_settings++].more = more;
    return 0;
}

/* --set KEY=VALUE */
static int parse_set(struct options *o, const char *text, struct err *err)
{
    const char *equals = strchr(text, '=');
    size_t size = equals ? (size_t)(equals - text) : 0;

    if (!equals || size >= KEY_SIZE)
        return err_set(err, ERR_INPUT, "--set: '%.60s' is not of the form KEY=VALUE", text);
    return add_setting(o, NULL, text, size, equals + 1, err);
}

static int parse_flag(struct options *o, const char *flag, const char *value, struct err *err)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strcmp(flag, settings[i].flag) == 0)
            return add_setting(o, settings[i].flag, settings[i].key, strlen(settings[i].key), value,
                               err);
    if (strcmp(flag, "--config") == 0) {
        o->config = value;
        return 0;
    }
    if (strcmp(flag, "--set") == 0)
        return parse_set(o, value, err);
    if (strcmp(flag, "--role") == 0)
        return parse_role(o, value, err);
    if (strcmp(flag, "--slot") == 0)
        return parse_number(&o->slot, flag, value, err);
    if (strcmp(flag, "--listeners") == 0)
        return parse_number(&o->n_listeners, flag, value, err);
    if (strcmp(flag, "--held") == 0)
        return size_parse(&o->held, value) ? 0 : err_set(err, ERR_INPUT, "--held: no size");
    return err_set(err, ERR_INPUT, "unknown flag '%.60s'; --help lists them", flag);
}

/* Flags that stand alone; 1 when it was one. */
static int parse_switch(struct options *o, const char *flag)
{
    if (strcmp(flag, "--check-config") == 0)
        o->action = OPTIONS_CHECK;
    else if (strcmp(flag, "--version") == 0)
        o->action = OPTIONS_VERSION;
    else if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0)
        o->action = OPTIONS_HELP;
    else if (strcmp(flag, "--insecure-no-auth") == 0)
        o->insecure_no_auth = true;
    else
        return 0;
    return 1;
}

static bool takes_value(const char *flag)
{
    static const char *const others[] = { "--config", "--set", "--role", "--slot", "--listeners",
                                          "--held" };

    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strcmp(flag, settings[i].flag) == 0)
            return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(flag, others[i]) == 0)
            return true;
    return false;
}

int options_parse(struct options *out, int argc, char **argv, struct err *err)
{
    struct options o = { 0 };
    char flag[32];

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            return err_set(err, ERR_INPUT, "'%.60s' is no flag; --help lists them", argv[i]);
        if (parse_switch(&o, argv[i]))
            continue;
        const char *value = strchr(argv[i], '=');
        size_t size = value ? (size_t)(value - argv[i]) : strlen(argv[i]);
        if (size >= sizeof flag)
            return err_set(err, ERR_INPUT, "unknown flag '%.60s'; --help lists them", argv[i]);
        memcpy(flag, argv[i], size);
        flag[size] = '\0';
        if (!takes_value(flag))
            return err_set(err, ERR_INPUT, "unknown flag '%s'; --help lists them", flag);
        if (value)
            value++;
        else if (i + 1 < argc)
            value = argv[++i];
        else
            return err_set(err, ERR_INPUT, "%s needs a value", flag);
        if (parse_flag(&o, flag, value, err) < 0)
            return -1;
    }
    *out = o;
    return 0;
}

static bool has_setting(const struct options *o, const char *key)
{
    for (uint32_t i = 0; i < o->n_settings; i++)
        if (same_key(o, i, key, strlen(key)))
            return true;
    return false;
}

/* The engine says what is wrong inside; a path that leads nowhere is a wrong setting. */
static int check_model_dir(const struct conf *c, struct err *err)
{
    struct stat about;

    if (stat(c->model_dir, &about) < 0 && errno == ELOOP) /* links of a broken cache */
        return err_set(err, ERR_FORMAT, "model.dir: %s: %s", c->model_dir, strerror(errno));
    if (stat(c->model_dir, &about) < 0)
        return err_set(err, ERR_INPUT, "model.dir: %s: %s", c->model_dir, strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return err_set(err, ERR_INPUT, "model.dir: %s is not a directory", c->model_dir);
    return 0;
}

int options_load(const struct options *o, struct conf *c, struct err *err)
{
    const char *path = o->config;

    conf_init(c);
    if (!path && !has_setting(o, "model.dir") && access(default_config, F_OK) == 0)
        path = default_config;
    if (path && conf_read(c, path, err) < 0)
        return -1;
    for (uint32_t i = 0; i < o->n_settings; i++) {
        char key[KEY_SIZE];
        memcpy(key, o->settings[i].key, o->settings[i].key_size);
        key[o->settings[i].key_size] = '\0';
        if (conf_set(c, o->settings[i].flag ? o->settings[i].flag : key, key,
                     o->settings[i].value, o->settings[i].more, err) < 0)
            return -1;
    }
    if (conf_finish(c, err) < 0)
        return -1;
    if (!o->insecure_no_auth && conf_check_exposure(c, err) < 0)
        return -1;
    return check_model_dir(c, err);
}
