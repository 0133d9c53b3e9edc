"""embed.py INPUT OUTPUT SYMBOL: writes a file's bytes as a C array with its length."""
import sys

source, target, symbol = sys.argv[1:]
data = open(source, "rb").read()
with open(target, "w") as out:
    out.write("#include <stddef.h>\n")
    out.write("extern const char %s[];\nextern const size_t %s_size;\n" % (symbol, symbol))
    out.write("const char %s[] = {\n" % symbol)
    for start in range(0, len(data), 20):
        out.write(" ".join("%d," % (b - 256 if b > 127 else b) for b in data[start:start + 20]) + "\n")
    out.write("0};\nconst size_t %s_size = %d;\n" % (symbol, len(data)))
