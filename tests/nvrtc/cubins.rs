//! What the software driver reads from the cubins of NVIDIA's compiler.

use crate::common::child::in_child;
use crate::{common, libraries, or_skip};
use cuda_nvrtc::{Architecture, CompileOptions, Program, Target};
use cuda_safe::module::attribute as kernel_attribute;
use cuda_safe::{Context, Module};

/// Kernels and variables of every form that a cubin describes.
const SOURCE: &str = r#"
struct Big { char c; double d; int a[5]; };
__device__ int counter = 7;
__device__ double zeros[100];
__constant__ int weights[3] = {10, 20, 30};
extern "C" __global__ void __launch_bounds__(256) large(float *x, char c, Big b, short s, long long n) {
    __shared__ float tile[300];
    tile[threadIdx.x] = x[threadIdx.x] * b.d;
    __syncthreads();
    float local[64];
    for (int i = 0; i < 64; i++)
        local[i] = tile[(i * threadIdx.x) % 300];
    for (int i = 0; i < 64; i++)
        x[i] += local[(int)x[i] & 63] + weights[(int)x[i] & 1];
    counter++;
    zeros[n] = s + c;
}
extern "C" __global__ void empty() {}
template <class T> __global__ void copy(T a, T *b) { *b = a; }
template __global__ void copy<int>(int, int *);
#ifdef CLUSTERS
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(int *p) { *p = 1; }
#endif
"#;

/// Loads the program, compiled for the first devices of a major version, which have clusters from 9 on.
fn load(context: &Context, major: u16) -> Module {
    let program = match major {
        9 => Program::new(format!("#define CLUSTERS\n{SOURCE}")),
        _ => Program::new(SOURCE),
    };
    let options = CompileOptions {
        target: Some(Target::Cubin(Architecture::new(major, 0))),
        ..Default::default()
    };
    let compiled = program.compile(&options).expect("a correct program");
    compiled.load(context).expect("code for this device")
}

#[test]
fn kernels_and_variables_of_a_cubin_are_those_of_the_source() {
    or_skip!(libraries::nvrtc());
    // The last device gets the code of an earlier minor version.
    for profile in ["h200@13.5", "a100@13.5", "l40s@13.5"] {
        in_child(&[("CUDA_SIM", profile), ("CUDA_TESTS", "")], || {
            let device = common::gpu().expect("the software driver");
            let context = Context::primary(&device).expect("a context");
            let major = device.compute_capability().expect("a capability").0;
            let module = load(&context, u16::try_from(major).expect("a version"));
            if major == 9 {
                let clustered = module.kernel("clustered").expect("the kernel");
                let width = clustered.attribute(kernel_attribute::REQUIRED_CLUSTER_WIDTH);
                assert_eq!(width.expect("an attribute"), 2);
            }
            let large = module.kernel("large").expect("the kernel");
            let attribute = |attribute| large.attribute(attribute).expect("an attribute");
            assert_eq!(attribute(kernel_attribute::MAX_THREADS_PER_BLOCK), 256);
            assert_eq!(attribute(kernel_attribute::STATIC_SHARED_BYTES), 1200);
            assert!(attribute(kernel_attribute::REGISTERS) > 8);
            assert_eq!(attribute(kernel_attribute::LOCAL_BYTES), 256);
            let parameters = large.parameters().expect("parameters").expect("CUDA 12.4");
            let parameters = parameters.iter().map(|its| (its.offset, its.size));
            let expected = [(0, 8), (8, 1), (16, 40), (56, 2), (64, 8)];
            assert_eq!(parameters.collect::<Vec<_>>(), expected);

            let empty = module.kernel("empty").expect("the kernel");
            let attribute = |attribute| empty.attribute(attribute).expect("an attribute");
            assert_eq!(attribute(kernel_attribute::STATIC_SHARED_BYTES), 0);
            assert_eq!(attribute(kernel_attribute::LOCAL_BYTES), 0);
            module.kernel("_Z4copyIiEvT_PS0_").expect("the mangled name");
            let missing = module.kernel("copy").expect_err("no such name");
            assert!(missing.to_string().contains("\"copy\""), "{missing}");

            let global = |name| module.global(name).expect("the variable").size_bytes();
            assert_eq!((global("counter"), global("zeros"), global("weights")), (4, 800, 12));
        });
    }
}
