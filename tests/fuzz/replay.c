/* Replays every file of the directories (or files) given through a fuzz target. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) < 0) {
        perror(path);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    /* An exact allocation, so that a sanitizer sees a read past the end. */
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, f) != size) {
        perror(path);
        return -1;
    }
    fclose(f);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            if (replay(argv[i]) < 0) {
                return 1;
            }
            count++;
            continue;
        }
        for (struct dirent *e; (e = readdir(dir));) {
            char path[4096];
            if (e->d_name[0] == '.') {
                continue;
            }
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (replay(path) < 0) {
                return 1;
            }
            count++;
        }
        closedir(dir);
    }
    printf("%d inputs replayed\n", count);
    return count == 0; /* an empty corpus is a test that tests nothing */
}
