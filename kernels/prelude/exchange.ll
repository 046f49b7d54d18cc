; Memory that kernels for SPIR-V exchange words through, see kn_xor_u32 in opencl.h.
target datalayout = "e-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024"
target triple = "spir64"

@kn_words = internal addrspace(3) global [1024 x i32] undef, align 4

define spir_func i32 addrspace(3)* @kn_exchange() alwaysinline nounwind readnone {
  ret i32 addrspace(3)* getelementptr inbounds ([1024 x i32], [1024 x i32] addrspace(3)* @kn_words, i64 0, i64 0)
}
