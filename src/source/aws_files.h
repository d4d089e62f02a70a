/* aws_files.h - the shared files of the AWS tools, ~/.aws/config and ~/.aws/credentials, read as botocore reads them.
 *
 *     [profile train]                  in credentials: [train]; the default profile is [default] in both
 *     region = eu-central-1
 *     services = minio                 endpoints by service stand in a section of their own
 *     s3 =
 *         addressing_style = path      one level of nesting, by indentation
 *
 * Comments are whole lines that begin with # or ;.  Keys are lower-cased.  What is set twice counts as set last.
 * The text is parsed in place and wiped at close, because it holds secrets; messages name file and line, never the
 * contents. */
#ifndef STK_SOURCE_AWS_FILES_H
#define STK_SOURCE_AWS_FILES_H

#include "base/memory.h"

enum { STK_AWS_FILE_BYTES = 1 << 20 };

typedef struct stk_aws_files stk_aws_files;

/* Read both files; NULL, a missing file, and what is no regular file (/dev/null) count as empty.
 * STK_ERR_OPTION: a line that is none, a file of more than 1 MiB; STK_ERR_SYSTEM: it exists and cannot be read. */
stk_status stk_aws_files_open(stk_aws_files **out, const char *config_path, const char *credentials_path,
                              stk_error *err) STK_MUST_USE;
void stk_aws_files_close(stk_aws_files **files);

/* The same from texts, which are parsed in place and stay the caller's until close; the byte behind each is written too. */
stk_status stk_aws_files_parse(stk_aws_files **out, char *config, size_t config_bytes, char *credentials,
                               size_t credentials_bytes, stk_error *err) STK_MUST_USE;

typedef enum stk_aws_file {
    STK_AWS_CONFIG,
    STK_AWS_CREDENTIALS,
    STK_AWS_EITHER /* credentials before config */
} stk_aws_file;

bool stk_aws_files_has_profile(const stk_aws_files *files, const char *profile);

/* A value of a profile; block names an indented block ("s3"), NULL is the profile itself.  NULL: not set. */
const char *stk_aws_files_get(const stk_aws_files *files, stk_aws_file file, const char *profile, const char *block,
                              const char *key);

/* A value of a service ("s3", "sts") in the [services NAME] section that the profile names; NULL: not set. */
const char *stk_aws_files_service(const stk_aws_files *files, const char *profile, const char *service,
                                  const char *key);

/* Split a text into words as a POSIX shell would, quotes and backslashes only, in place.  Returns the number of words, of which
 * at most capacity are written; SIZE_MAX: a quote or a backslash is left open. */
size_t stk_shell_split(char *text, char **word, size_t capacity);

#endif
