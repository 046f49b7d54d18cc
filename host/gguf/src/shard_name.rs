//! The names of split files: `stem-00001-of-00003.gguf`.

/// A file name that says it is one part of a split model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardName {
    /// The name before `-00001-of-`.
    pub stem: String,
    /// Which part, from 1 to `total`.
    pub index: u32,
    /// How many parts there are.
    pub total: u32,
}

const EXTENSION: &str = ".gguf";

impl ShardName {
    /// Recognises a file name (not a path, so that folder names play no part).
    ///
    /// Both numbers have exactly five digits. Part 0 and parts above the total do not exist, so
    /// such names are taken as names of whole files, like any other.
    pub fn parse(file_name: &str) -> Option<Self> {
        let (rest, total) = file_name.strip_suffix(EXTENSION)?.rsplit_once("-of-")?;
        let (stem, index) = rest.rsplit_once('-')?;
        let (index, total) = (five_digits(index)?, five_digits(total)?);
        (!stem.is_empty() && index >= 1 && index <= total).then(|| ShardName {
            stem: stem.to_owned(),
            index,
            total,
        })
    }

    /// The file name of part `index` of the same model.
    pub fn sibling(&self, index: u32) -> String {
        shard_file_name(&self.stem, index, self.total)
    }
}

pub(crate) fn shard_file_name(stem: &str, index: u32, total: u32) -> String {
    format!("{stem}-{index:05}-of-{total:05}{EXTENSION}")
}

fn five_digits(text: &str) -> Option<u32> {
    (text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::ShardName;

    #[test]
    fn only_complete_names_in_range_are_shards() {
        for (name, expected) in [
            ("m-00001-of-00003.gguf", Some(("m", 1, 3))),
            ("m-00003-of-00003.gguf", Some(("m", 3, 3))),
            ("m-00001-of-00001.gguf", Some(("m", 1, 1))),
            ("a-00001-of-00002-00002-of-00003.gguf", Some(("a-00001-of-00002", 2, 3))),
            ("m-00000-of-00003.gguf", None),
            ("m-00004-of-00003.gguf", None),
            ("m-00000-of-00000.gguf", None),
            ("best-of-breed.gguf", None),
            ("m-1-of-3.gguf", None),
            ("m-000001-of-000003.gguf", None),
            ("m-+0001-of-00003.gguf", None),
            ("-00001-of-00003.gguf", None),
            ("m-00001-of-00003.gguf.part", None),
            ("m-00001-of-00003", None),
            ("", None),
        ] {
            let parsed = ShardName::parse(name);
            assert_eq!(parsed.as_ref().map(|it| (&*it.stem, it.index, it.total)), expected, "{name}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.sibling(parsed.index), name);
            }
        }
    }
}
