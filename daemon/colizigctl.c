/* colizigctl: looks at checkpoints, plans, runs a model by hand, and asks a running daemon. */
#include "daemon/ctl.h"

#include "daemon/version.h"
#include "util/err.h"

#include <stdio.h>
#include <string.h>

static const struct ctl_command *const commands[] = {
    &ctl_chat, &ctl_status, &ctl_stats, &ctl_inspect, &ctl_plan, &ctl_tokenize, &ctl_forward, &ctl_selftest,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *to)
{
    fprintf(to, "usage: colizigctl COMMAND [flags] [...]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-9s %-22s %s\n", commands[i]->name, commands[i]->operands,
                commands[i]->summary);
    fprintf(to, "\n'colizigctl COMMAND --help' tells the flags of one; all take --json and "
                "--threads N.\n"
                "chat, status and stats ask a running colizigd, the others need none.\n\n"
                "exit status: 0 fine, 1 failure, 2 usage or config, 3 bad checkpoint,\n"
                "             4 does not fit the memory budget, 5 no daemon\n");
}

static int usage_fault(const char *what, const char *word)
{
    fprintf(stderr, "colizigctl: %s%.60s; 'colizigctl --help' lists the commands\n", what, word);
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
        if (strcmp(argv[1], commands[i]->name) != 0)
            continue;
        if (ctl_args_parse(&args, commands[i], argc - 2, argv + 2, &err) < 0)
            return ctl_fail(NULL, &err);
        if (args.help) {
            ctl_args_help(commands[i]);
            return EXIT_FINE;
        }
        int status = commands[i]->run(&args);
        if (fflush(stdout) != 0 && status == EXIT_FINE) {
            perror("colizigctl: writing the answer");
            status = EXIT_FAILED;
        }
        return status;
    }
    return usage_fault("unknown command ", argv[1]);
}
