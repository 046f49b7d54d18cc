//! The levels of types whose 4-bit quants are indexes.

/// IQ4_NL, in units of the scale: quantiles of a bell curve.
pub(super) const IQ4_NL: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// MXFP4, in units of half the scale: twice the floats with two bits of exponent and one of mantissa (OCP
/// Microscaling Formats, E2M1). Minus zero is zero.
pub(super) const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The tables plus 128, as the kernels want centred quants.
pub(crate) const CENTRED_IQ4_NL: [u8; 16] = centred(IQ4_NL);
pub(crate) const CENTRED_MXFP4: [u8; 16] = centred(MXFP4);

const fn centred(levels: [i8; 16]) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut i = 0;
    while i < 16 {
        bytes[i] = (levels[i] as u8) ^ 0x80;
        i += 1;
    }
    bytes
}
