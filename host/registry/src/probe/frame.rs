//! The answer of a child on its way to the parent.

const MAGIC: &[u8; 16] = b"PACELINE-PROBE1\n";
const HEADER_BYTES: usize = MAGIC.len() + 4;
/// An answer is some lines of JSON.
pub(super) const LIMIT: usize = 1 << 20;

/// The bytes that carry an answer.
pub(super) fn encode(answer: &[u8]) -> Vec<u8> {
    // An answer that is too long is one that the parent will not take, which is as good as none.
    let length = u32::try_from(answer.len()).unwrap_or(u32::MAX);
    [MAGIC.as_slice(), &length.to_le_bytes(), answer].concat()
}

/// The answer in what came so far, once it is whole.
pub(super) fn decode(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (length, answer) = rest.split_first_chunk::<4>()?;
    answer.get(..u32::from_le_bytes(*length) as usize)
}

/// Whether more bytes can still make an answer of these.
pub(super) fn may_become_one(bytes: &[u8]) -> bool {
    bytes.len() <= HEADER_BYTES + LIMIT && bytes.iter().zip(MAGIC).all(|(byte, magic)| byte == magic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_is_one() {
        let bytes = encode(b"{}");
        assert_eq!(decode(&bytes), Some(b"{}".as_slice()));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None);
            assert!(may_become_one(&bytes[..cut]));
        }
        assert!(!may_become_one(b"hello"));
    }
}
