/* Parses and writes ZPL key files. */
#include "proto/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/array_len.h"
#include "proto/regular_file.h"

static const char alphabet[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

bool trajd_key_is_valid(const char *text)
{
    return strlen(text) == TRAJD_KEY_SIZE - 1 && strspn(text, alphabet) == TRAJD_KEY_SIZE - 1;
}

bool trajd_key_name_is_valid(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t length = strlen(name);
    return length > 0 && length < TRAJD_KEY_NAME_SIZE && strspn(name, allowed) == length &&
           !strchr("-_.", name[0]);
}

/* ---- reading ---- */

/* Splits a line `name = "value"`, and removes blanks and quotes. Returns false for any other line.
 */
static bool split(char *line, char **name, char **value)
{
    char *equals = strchr(line, '=');
    if (!equals)
        return false;
    char *end = equals;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    *name = line;
    *value = equals + 1 + strspn(equals + 1, " \t");
    size_t length = strlen(*value);
    while (length > 0 && strchr(" \t\r", (*value)[length - 1]))
        (*value)[--length] = '\0';
    if (length >= 2 && ((*value)[0] == '"' || (*value)[0] == '\'') &&
        (*value)[length - 1] == (*value)[0]) {
        (*value)[length - 1] = '\0';
        (*value)++;
    }
    return true;
}

static enum trajd_status note(const char *path, unsigned number, const char *name,
                              const char *value, struct trajd_key_file *keys,
                              struct trajd_error *error)
{
    char *const fields[] = {keys->public_key, keys->secret_key, keys->server_key};
    static const char *const names[] = {"public-key", "secret-key", "server-key"};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        if (!trajd_key_is_valid(value))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s:%u: %s: must be 40 characters of Z85", path, number,
                                   names[i]);
        if (fields[i][0] != '\0')
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s:%u: %s appears a second time",
                                   path, number, names[i]);
        memcpy(fields[i], value, TRAJD_KEY_SIZE);
        return TRAJD_OK;
    }
    if (strcmp(name, "name") != 0)
        return TRAJD_OK;
    if (!trajd_key_name_is_valid(value))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s:%u: name: must be 1 to 64 letters, digits, '-', '_' and '.'",
                               path, number);
    memcpy(keys->name, value, strlen(value) + 1);
    return TRAJD_OK;
}

enum trajd_status trajd_key_parse(const char *path, const char *text, size_t size,
                                  struct trajd_key_file *keys, struct trajd_error *error)
{
    char line[256];
    unsigned number = 0;
    *keys = (struct trajd_key_file){.name = ""};
    for (size_t at = 0, length; at < size; at += length + 1) {
        const char *end = memchr(text + at, '\n', size - at);
        length = end ? (size_t)(end - (text + at)) : size - at;
        number++;
        if (length >= sizeof line || memchr(text + at, '\0', length))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s:%u: this is not a line of a key file", path, number);
        memcpy(line, text + at, length);
        line[length] = '\0';
        char *begin = line + strspn(line, " \t"), *name, *value;
        if (*begin == '#' || !split(begin, &name, &value))
            continue;
        enum trajd_status status = note(path, number, name, value, keys, error);
        if (status)
            return status;
    }
    if (keys->public_key[0] == '\0')
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s: no public-key: this is not a key file (trajctl keygen makes them)", path);
    return TRAJD_OK;
}

static enum trajd_status check_secrecy(const char *path, int fd, struct trajd_error *error)
{
    struct stat file;
    if (fstat(fd, &file) != 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    if (file.st_uid != geteuid() && file.st_uid != 0)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s: belongs to uid %u: a secret key must belong to the user (uid %u)", path,
            (unsigned)file.st_uid, (unsigned)geteuid());
    if ((file.st_mode & 077) != 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: mode %04o lets others use this secret key (chmod 600)", path,
                               (unsigned)file.st_mode & 07777);
    return TRAJD_OK;
}

static enum trajd_status read_open(const char *path, int fd, struct trajd_key_file *keys,
                                   struct trajd_error *error)
{
    char text[TRAJD_KEY_FILE_LIMIT + 1];
    size_t size = 0;
    ssize_t count;
    while (size < sizeof text && (count = read(fd, text + size, sizeof text - size)) != 0) {
        if (count < 0)
            return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
        size += (size_t)count;
    }
    if (size > TRAJD_KEY_FILE_LIMIT)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: is longer than %u bytes: this is not a key file", path,
                               TRAJD_KEY_FILE_LIMIT);
    enum trajd_status status = trajd_key_parse(path, text, size, keys, error);
    explicit_bzero(text, sizeof text);
    return status;
}

static enum trajd_status read_file(const char *path, bool is_secret, struct trajd_key_file *keys,
                                   struct trajd_error *error)
{
    int fd;
    enum trajd_status status = trajd_open_regular(path, &fd, error);

    if (status)
        return status;
    if (is_secret)
        status = check_secrecy(path, fd, error);
    if (!status)
        status = read_open(path, fd, keys, error);
    close(fd);
    return status;
}

enum trajd_status trajd_key_read(const char *path, struct trajd_key_file *keys,
                                 struct trajd_error *error)
{
    return read_file(path, false, keys, error);
}

enum trajd_status trajd_key_read_secret(const char *path, struct trajd_key_file *keys,
                                        struct trajd_error *error)
{
    const enum trajd_status status = read_file(path, true, keys, error);

    if (!status && keys->secret_key[0] == '\0')
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: no secret-key: is this the public file?", path);
    return status;
}

/* ---- writing ---- */

static int format_text(const struct trajd_key_file *keys, char *text, size_t room)
{
    const bool secret = keys->secret_key[0] != '\0', bound = keys->server_key[0] != '\0';
    return snprintf(text, room,
                    "# %s, made by trajctl keygen.\n"
                    "metadata\n"
                    "    name = \"%s\"\n"
                    "%s%s%s"
                    "curve\n"
                    "    public-key = \"%s\"\n"
                    "%s%s%s",
                    secret ? "A key pair to be kept secret" : "A public key", keys->name,
                    bound ? "    server-key = \"" : "", keys->server_key, bound ? "\"\n" : "",
                    keys->public_key, secret ? "    secret-key = \"" : "", keys->secret_key,
                    secret ? "\"\n" : "");
}

enum trajd_status trajd_key_write(const char *path, const struct trajd_key_file *keys,
                                  struct trajd_error *error)
{
    char text[1024];
    const mode_t mode = keys->secret_key[0] != '\0' ? 0600 : 0644;
    const int size = format_text(keys, text, sizeof text);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return trajd_error_set(error, errno == EEXIST ? TRAJD_ERR_BUSY : TRAJD_ERR_SYSTEM, errno,
                               "%s: %s", path, strerror(errno));
    const bool good = fchmod(fd, mode) == 0 && write(fd, text, (size_t)size) == size;
    const int code = errno;
    explicit_bzero(text, sizeof text);
    if (close(fd) == 0 && good)
        return TRAJD_OK;
    unlink(path);
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "%s: %s", path, strerror(code));
}
