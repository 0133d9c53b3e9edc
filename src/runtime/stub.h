/* What an interpreter runs before it has the worker: `python3 -s -u -c STUB RFD WFD`.
 *
 * RFD and WFD are the numbers of the descriptors on which the stream comes in and goes out (the
 * same number twice for a socket that is both). Descriptors can be passed along when RFD is a Unix
 * socket. The stub takes '' from sys.path, reads u32 length (little endian) and so many bytes of
 * source (the joined parts of worker/) from RFD, not one byte more, and runs them as a module of its
 * own name. Frames of docs/protocol.md follow directly.
 *
 * The text holds no single quote, dollar, backslash or newline, so it may stand between single
 * quotes in the command line of any shell.
 */
#pragma once

#define RLM_WORKER_STUB                                                                          \
    "import sys,os;"                                                                             \
    "sys.path[:]=[p for p in sys.path if p];"                                                    \
    "r,w=map(int,sys.argv[1:3]);"                                                                \
    "b=bytearray();"                                                                             \
    "g=lambda n:[b.extend(os.read(r,n-len(b)) or os._exit(0))for _ in iter(lambda:len(b)<n,0)];" \
    "g(4);"                                                                                      \
    "g(4+int.from_bytes(b,\"little\"));"                                                         \
    "m=type(sys)(\"rlmflow_worker\");"                                                           \
    "m.protocol=(r,w);"                                                                          \
    "exec(compile(bytes(b[4:]),\"<worker>\",\"exec\"),m.__dict__)"

/* The same for any Python: one that is too old says so. */
#define RLM_WORKER_PROGRAM                                                            \
    "import sys;"                                                                     \
    "sys.version_info<(3,8) and sys.exit(\"Python 3.8 or newer is needed; %s is %s\"" \
    "%(sys.executable,sys.version.split()[0]));" RLM_WORKER_STUB
