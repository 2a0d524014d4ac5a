// A program that calls the library with tensors of PyTorch, on its default stream and on another one.

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <iostream>

extern "C" {
struct Extension;
Extension *extension_open(unsigned device);
DLManagedTensor *extension_scale(const Extension *, DLManagedTensor *, cudaStream_t, int factor);
void extension_close(Extension *);
}

// The operation, for a tensor of 32-bit integers on the device of the extension.
at::Tensor scale(const Extension *extension, const at::Tensor &input, int factor) {
    auto stream = c10::cuda::getCurrentCUDAStream(input.device().index());
    auto *tensor = at::toDLPack(input.contiguous());
    auto *output = extension_scale(extension, tensor, stream.stream(), factor);
    TORCH_CHECK(output != nullptr, "the operation failed, see above");
    return at::fromDLPack(output).view(input.sizes());
}

int main() {
    auto *extension = extension_open(0);
    TORCH_CHECK(extension != nullptr, "the device cannot be used, see above");
    for (auto stream : {c10::cuda::getDefaultCUDAStream(0), c10::cuda::getStreamFromPool(false, 0)}) {
        const c10::cuda::CUDAStreamGuard guard(stream);
        auto input = at::arange(6, at::device({at::kCUDA, 0}).dtype(at::kInt)).view({2, 3});
        auto output = scale(extension, input, 2);
        TORCH_CHECK(at::equal(output, input + input), output);
        std::cout << output << std::endl;
    }
    extension_close(extension);
}
