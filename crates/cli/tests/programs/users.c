/* Changes its user and keeps its capabilities, as setpriv does, with paged memory. Exits with 77 if it is not root.
 *
 * usage: users BYTES
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, USER = 12345 };

static char *memory;
static size_t bytes;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void use(int before, int now) {
    for (size_t at = 0; at < bytes; at += PAGE) {
        if (before >= 0 && memory[at] != (char)(at / PAGE + before)) {
            fprintf(stderr, "page %zu is wrong in round %d\n", at / PAGE, now);
            exit(1);
        }
        memory[at] = (char)(at / PAGE + now);
    }
}

/* Makes all permitted capabilities effective. */
static void raise_all(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct all[2];
    if (syscall(SYS_capget, &head, all)) fail("capget");
    for (int n = 0; n < 2; n++) all[n].effective = all[n].permitted;
    if (syscall(SYS_capset, &head, all)) fail("capset");
}

/* Checks that every thread of the process has the new user, group and supplementary groups. */
static void check_users(void) {
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    char path[300], line[200];
    int threads = 0;
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file)) {
            /* A kernel thread of an io_uring: it runs no code of the program. */
            if (!strncmp(line, "Name:\tiou-wrk", 13)) break;
            if ((!strncmp(line, "Uid:", 4) && strcmp(line, "Uid:\t12345\t12345\t12345\t12345\n")) ||
                (!strncmp(line, "Gid:", 4) && strcmp(line, "Gid:\t12345\t12345\t12345\t12345\n")) ||
                (!strncmp(line, "Groups:", 7) && strcmp(line, "Groups:\t12345 \n"))) {
                fprintf(stderr, "%s: %s", path, line);
                exit(1);
            }
        }
        if (file) fclose(file);
        threads++;
    }
    if (threads == 0) fail("/proc/self/task");
}

int main(int argc, char **argv) {
    gid_t group = USER;
    int status;
    if (argc != 2) return 2;
    if (geteuid()) return 77;
    bytes = strtoull(argv[1], NULL, 10);
    memory = malloc(bytes);
    use(-1, 0);
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)) fail("prctl");
    if (setresuid(USER, USER, USER)) fail("setresuid");
    raise_all();
    if (setresgid(USER, USER, USER)) fail("setresgid");
    if (setgroups(0, NULL)) fail("setgroups");
    use(0, 1);
    raise_all();
    if (setgroups(1, &group)) fail("setgroups, again");
    check_users();
    use(1, 2);
    pid_t child = fork();
    if (child == 0) {
        use(2, 3);
        check_users();
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status) fail("the child");
    use(2, 3);
    puts("right");
    return 0;
}
