//! The whole plugin on drivers without a GPU: OpenCL on the processor.

mod opencl;
