/* colizigctl: looks at checkpoints, plans, runs a model by hand, and asks a running daemon. */
#include "daemon/ctl/ctl.h"

#include "daemon/base/nearest.h"
#include "daemon/base/version.h"
#include "util/err.h"

#include <stdio.h>
#include <string.h>

static const struct ctl_command *const online[] = {
    &ctl_chat,   &ctl_status, &ctl_stats, &ctl_experts, &ctl_requests,
    &ctl_cancel, &ctl_reload, &ctl_drain, &ctl_budget,  &ctl_log,
};
static const struct ctl_command *const offline[] = {
    &ctl_inspect, &ctl_plan, &ctl_tokenize, &ctl_render, &ctl_forward, &ctl_selftest,
};
enum {
    N_ONLINE = sizeof online / sizeof online[0],
    N_OFFLINE = sizeof offline / sizeof offline[0],
    N_COMMANDS = N_ONLINE + N_OFFLINE,
};

static const struct ctl_command *command_at(size_t i)
{
    return i < N_ONLINE ? online[i] : offline[i - N_ONLINE];
}

static void print_help(FILE *to)
{
    fprintf(to, "usage: colizigctl COMMAND [flags] [...]\n\nof a running colizigd:\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct ctl_command *c = command_at(i);
        if (i == N_ONLINE)
            fprintf(to, "by itself (inspect and plan also of a running one):\n");
        fprintf(to, "  %-9s %-22s %s\n", c->name, c->operands, c->summary);
    }
    fprintf(to, "\n'colizigctl COMMAND --help' tells the flags of one; all take --json.\n"
                "exit status: 0 fine, 1 failure, 2 usage or config, 3 bad checkpoint,\n"
                "             4 does not fit the memory budget, 5 no daemon\n");
}

static int usage_fault(const char *what, const char *word)
{
    const char *names[N_COMMANDS];
    char plain[80];

    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = command_at(i)->name;
    const char *near = nearest(word, names, N_COMMANDS);
    fprintf(stderr, "colizigctl: %s%s%s%s; 'colizigctl --help' lists the commands\n", what,
            ctl_plain(plain, sizeof plain, word), near ? ", did you mean " : "",
            near ? near : "");
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct ctl_args args;
    struct err err;

    if (argc < 2)
        return usage_fault("no command was given", "");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_FINE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("colizigctl %s\n", version_number());
        return EXIT_FINE;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct ctl_command *command = command_at(i);
        if (strcmp(argv[1], command->name) != 0)
            continue;
        if (ctl_args_parse(&args, command, argc - 2, argv + 2, &err) < 0)
            return ctl_fail(NULL, &err);
        if (args.help) {
            ctl_args_help(command);
            return EXIT_FINE;
        }
        int status = command->run(&args);
        if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_FINE) {
            perror("colizigctl: writing the answer");
            status = EXIT_FAILED;
        }
        return status;
    }
    return usage_fault("unknown command ", argv[1]);
}
