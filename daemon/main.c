/* colizigd: argv to role. Without --role it is the supervisor; the others are started by it,
 * with their channel as descriptor 3 and the sealed config as 4. */
#include "daemon/base/log.h"
#include "daemon/base/version.h"
#include "daemon/conf/chat_template.h"
#include "daemon/conf/check.h"
#include "daemon/conf/conf.h"
#include "daemon/conf/options.h"
#include "daemon/conf/state_dir.h"
#include "daemon/host/engine_host.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/supervisor/child.h"
#include "daemon/supervisor/supervisor.h"
#include "daemon/wire/last_word.h"
#include "daemon/worker/worker.h"
#include "util/err.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

static int fail(const struct err *why)
{
    log_line(LOG_LEVEL_ERR, "%s", why->text);
    return err_exit_status(why->kind);
}

/* Of a child: the supervisor hears it too. */
static int fail_child(const struct err *why)
{
    last_word(CHILD_FD_CHANNEL, why->text);
    return fail(why);
}

static int run_worker(const struct options *o, const struct conf *conf)
{
    int listeners[CONF_MAX_WORKERS];
    struct worker_options worker = { .conf = conf, .listeners = listeners,
                                     .n_listeners = o->n_listeners, .channel = CHILD_FD_CHANNEL,
                                     .slot = o->slot };
    struct err why;

    for (uint32_t i = 0; i < o->n_listeners; i++)
        listeners[i] = CHILD_FD_LISTEN + (int)i;
    if (sandbox_enter(worker_descriptors(conf, o->n_listeners), &why) < 0)
        return fail_child(&why);
    return worker_run(&worker);
}

static int run_child(const struct options *o, const struct conf *conf)
{
    struct sandbox sandbox;
    struct err why;

    if (o->role == ROLE_WORKER)
        return run_worker(o, conf);
    if (sandbox_enter(0, &why) < 0)
        return fail_child(&why);
    if (o->role == ROLE_ENGINE)
        return engine_host_run(conf, CHILD_FD_CHANNEL);
    struct sandbox_files files = { .model_dir = conf->model_dir,
                                   .template_file = chat_template_file(conf->chat_template) };
    if (sandbox_engine(&sandbox, &files, &why) == 0 &&
        check_run(conf, CHECK_QUIET, o->held, &why) == 0)
        return EXIT_FINE;
    last_word(CHILD_FD_CHANNEL, why.text); /* the supervisor logs it */
    return err_exit_status(why.kind);
}

/* What is needed before the config is known. */
static int start_child(const struct options *o, struct conf *conf, struct err *err)
{
    static char who[24]; /* the log keeps it */
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };

    if (o->role == ROLE_WORKER)
        snprintf(who, sizeof who, "worker[%u]", o->slot);
    else
        snprintf(who, sizeof who, "%s", o->role == ROLE_ENGINE ? "engine" : "check");
    log_start(who, LOG_SERVICE, LOG_LEVEL_INFO);
    prctl(PR_SET_NAME, o->role == ROLE_WORKER   ? "colizig-worker"
                       : o->role == ROLE_ENGINE ? "colizig-door"
                                                : "colizig-check");
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        signal(ignored[i], SIG_IGN);
    if (fcntl(CHILD_FD_CHANNEL, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(CHILD_FD_CONF, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(err, ERR_INPUT, "--role is for processes that colizigd starts itself");
    conf_init(conf);
    if (conf_read_fd(conf, "config", CHILD_FD_CONF, err) < 0)
        return -1;
    return conf_finish(conf, err);
}

int main(int argc, char **argv)
{
    struct options options;
    struct conf conf = { 0 };
    struct err why;
    int status;

    log_start("colizigd", LOG_PROGRAM, LOG_LEVEL_INFO);
    if (options_parse(&options, argc, argv, &why) < 0)
        return fail(&why);
    if (options.action == OPTIONS_HELP) {
        fputs(options_help, stdout);
        return EXIT_FINE;
    }
    if (options.action == OPTIONS_VERSION) {
        printf("colizigd %s (%s)\n", version_number(), version_commit());
        return EXIT_FINE;
    }

    bool child = options.role != ROLE_SUPERVISOR;
    int rc = child ? start_child(&options, &conf, &why) : options_load(&options, &conf, &why);
    if (rc < 0) {
        status = child ? fail_child(&why) : fail(&why);
        conf_done(&conf);
        return status;
    }
    log_level(conf.log_level);
    if (child) {
        status = run_child(&options, &conf);
    } else if (options.action == OPTIONS_CHECK) {
        status = check_run(&conf, CHECK_PRINT_PLAN, 0, &why) < 0 ||
                         state_dir_check(&conf, &why) < 0
                     ? fail(&why)
                     : EXIT_FINE;
    } else {
        log_start("supervisor", LOG_SERVICE, conf.log_level);
        prctl(PR_SET_NAME, "colizigd");
        status = supervisor_run(&options, &conf);
    }
    conf_done(&conf);
    return status;
}
