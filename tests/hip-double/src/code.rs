//! What calls answer.

use std::ffi::{CStr, c_int};

/// An answer of the library; 0 is success.
pub type Code = c_int;

macro_rules! codes {
    ($($name:ident $number:literal $text:literal;)*) => {
        $(pub const $name: Code = $number;)*

        /// The library's name for an answer, and its sentence.
        pub fn texts(code: Code) -> (&'static CStr, &'static CStr) {
            const fn text(text: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => c"",
                }
            }
            match code {
                0 => (c"hipSuccess", c"no error"),
                $($number => (
                    const { text(concat!("hipError", stringify!($name), "\0")) },
                    const { text(concat!($text, "\0")) },
                ),)*
                _ => (c"hipErrorUnknown", c"unknown error"),
            }
        }
    };
}

#[allow(non_upper_case_globals, reason = "the names are the library's")]
mod named {
    use super::{CStr, Code};

    codes! {
        InvalidValue 1 "invalid argument";
        OutOfMemory 2 "out of memory";
        EccNotCorrectable 214 "uncorrectable ECC error encountered";
        NoDevice 100 "no ROCm-capable device is detected";
        InvalidDevice 101 "invalid device ordinal";
        InvalidImage 200 "device kernel image is invalid";
        NoBinaryForGpu 209 "no kernel image is available for execution on the device";
        PeerAccessUnsupported 217 "peer access is not supported between these two devices";
        InvalidHandle 400 "invalid resource handle";
        IllegalState 401 "the operation cannot be performed in the present state";
        NotFound 500 "named symbol not found";
        NotReady 600 "device not ready";
        IllegalAddress 700 "an illegal memory access was encountered";
        LaunchTimeOut 702 "the launch timed out and was terminated";
        PeerAccessAlreadyEnabled 704 "peer access is already enabled";
        PeerAccessNotEnabled 705 "peer access has not been enabled";
        ContextIsDestroyed 709 "context is destroyed";
        LaunchFailure 719 "unspecified launch failure";
        StreamCaptureUnsupported 900 "operation not permitted when stream is capturing";
        StreamCaptureInvalidated 901 "operation failed due to a previous error during capture";
        Unknown 999 "unknown error";
    }
}
pub use named::*;

/// True for an answer after which no call on the device succeeds.
pub fn is_lasting(code: Code) -> bool {
    [EccNotCorrectable, IllegalAddress, LaunchTimeOut, ContextIsDestroyed, LaunchFailure, Unknown]
        .contains(&code)
}
