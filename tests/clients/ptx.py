"""A plugin of pytest that compiles CUDA C++ to PTX where a test of cuda-core asks for machine code, which the
software driver does not run. The driver loads either from the same call."""

import cuda.core
import cuda.core._program


class Program(cuda.core.Program):
    def compile(self, target_type, name_expressions=(), logs=None, *, cache=None):
        if target_type != "cubin" or self.backend != "NVRTC" or cache is not None:
            return super().compile(target_type, name_expressions, logs, cache=cache)
        code = super().compile("ptx", name_expressions, logs)
        mapping = code.symbol_mapping
        return cuda.core.ObjectCode.from_cubin(code.code, name=code.name, symbol_mapping=mapping)


cuda.core.Program = Program
cuda.core._program.Program = Program
