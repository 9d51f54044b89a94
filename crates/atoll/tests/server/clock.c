/* The wall clock, moved by as many seconds as a file says; every other clock is as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("TEST_CLOCK");
    if (failed != 0 || clock != CLOCK_REALTIME || path == NULL) return failed;
    char text[32] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return failed;
    if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atoll(text);
    close(file);
    return failed;
}
