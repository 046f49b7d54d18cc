//! Signatures of plugin files, as `minisign` makes them: that of `libx.so` lies beside it and is called `libx.so.minisig`.
//!
//! A signature says who built a file, and no more. Whether one is needed, and from whom, the files of settings say.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use minisign_verify::{Error as VerifyError, PublicKey, Signature};

use crate::FileFault;
use crate::examine::sidecar;

/// A signature is some hundred bytes.
const LONGEST: u64 = 1 << 14;
const BLOCK: usize = 1 << 18;

/// What is asked of signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// Nothing: they are not looked at.
    #[default]
    Off,
    /// A file without one of a trusted key is used, with a warning.
    Warn,
    /// A file without one of a trusted key is not used.
    Require,
}

impl SignaturePolicy {
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("off", Self::Off), ("warn", Self::Warn), ("require", Self::Require)];
}

/// The public key of somebody whose plugins are trusted.
#[derive(Clone, Debug)]
pub struct TrustedKey {
    text: String,
    key: PublicKey,
}

impl TrustedKey {
    /// Reads a key as `minisign` prints it: 56 characters that begin with `RW`.
    ///
    /// # Errors
    /// What is no such key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let key = PublicKey::from_base64(text).map_err(|_| {
            format!(
                "`{}` is no public key of minisign, which has 56 characters and begins with `RW`",
                text.escape_debug()
            )
        })?;
        Ok(Self { text: text.to_owned(), key })
    }
}

/// What is asked of signatures, and whose count.
#[derive(Clone, Debug, Default)]
pub struct Signatures {
    /// What is asked.
    pub policy: SignaturePolicy,
    /// Whose signatures count.
    pub keys: Vec<TrustedKey>,
}

impl Signatures {
    /// Looks at the signature of a plugin file, and at that of a descriptor beside it: the key that both are from. `None` if
    /// nothing is asked.
    ///
    /// # Errors
    /// What is wrong with one of them, whether one is required or not.
    pub fn check(&self, path: &Path) -> Result<Option<&str>, FileFault> {
        if self.policy == SignaturePolicy::Off {
            return Ok(None);
        }
        let signed = |path: &Path| self.verify(path).map_err(|problem| FileFault::Signature { problem });
        let key = signed(path)?;
        let descriptor = sidecar(path);
        if descriptor.is_file() {
            self.verify(&descriptor).map_err(|problem| FileFault::Signature {
                problem: format!("has a descriptor beside it, {}, that {problem}", name(&descriptor)),
            })?;
        }
        Ok(Some(key))
    }

    /// The key that a file is signed with; or what is wrong, as a clause that goes on from the file's name.
    fn verify(&self, path: &Path) -> Result<&str, String> {
        let place = signature_path(path);
        let signature = match std::fs::metadata(&place) {
            Ok(metadata) if metadata.is_file() && metadata.len() <= LONGEST => {
                std::fs::read_to_string(&place)
                    .map_err(|error| format!("has a signature that cannot be read: {error}"))?
            }
            Ok(_) => return Err(format!("has no signature in {}: that is too large", name(&place))),
            Err(_) => return Err(format!("has no signature beside it, in {}", name(&place))),
        };
        let signature = Signature::decode(&signature)
            .map_err(|error| format!("has a signature that makes no sense: {error}"))?;
        let mut problem = "is signed with a key that is not trusted".to_owned();
        for key in &self.keys {
            let mut verifier = match key.key.verify_stream(&signature) {
                Ok(verifier) => verifier,
                Err(VerifyError::UnexpectedKeyId) => continue,
                Err(error) => {
                    problem = format!("has a signature that cannot be checked: {error}");
                    continue;
                }
            };
            let read = File::open(path).and_then(|mut file| {
                let mut block = vec![0; BLOCK];
                loop {
                    match file.read(&mut block) {
                        Ok(0) => return Ok(()),
                        Ok(count) => verifier.update(&block[..count]),
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            });
            read.map_err(|error| format!("cannot be read: {error}"))?;
            match verifier.finalize() {
                Ok(()) => return Ok(&key.text),
                Err(_) => problem = "has a signature of other content, or one that was forged".to_owned(),
            }
        }
        Err(problem)
    }
}

/// Where the signature of a file lies.
pub(crate) fn signature_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".minisig");
    name.into()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
