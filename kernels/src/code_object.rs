//! What a code object for AMD says about itself: the chip that it is for, and its kernels with what they take and use.
//!
//! A code object is an ELF file. Its header's flags name the target, a note holds a MessagePack map of the kernels (the
//! AMDGPU backend of LLVM documents both in "User Guide for AMDGPU Backend", code object versions 3 and newer).

use object::elf::{FileHeader64, NT_VERSION, SHT_NOTE};
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, SectionHeader};
use rmpv::Value;

/// The type of the note that holds the map.
const NOTE_METADATA: u32 = 32;
const _: () = assert!(NOTE_METADATA != NT_VERSION);
const MACHINE_AMDGPU: u16 = 224;

/// Targets and their numbers in the low byte of the flags.
const TARGETS: &[(&str, u32)] = &[
    ("gfx900", 0x2c),
    ("gfx906", 0x2f),
    ("gfx908", 0x30),
    ("gfx90a", 0x3f),
    ("gfx90c", 0x32),
    ("gfx942", 0x4c),
    ("gfx950", 0x4f),
    ("gfx1010", 0x33),
    ("gfx1011", 0x34),
    ("gfx1012", 0x35),
    ("gfx1030", 0x36),
    ("gfx1031", 0x37),
    ("gfx1032", 0x38),
    ("gfx1033", 0x39),
    ("gfx1034", 0x3e),
    ("gfx1035", 0x3d),
    ("gfx1036", 0x45),
    ("gfx1100", 0x41),
    ("gfx1101", 0x46),
    ("gfx1102", 0x47),
    ("gfx1103", 0x44),
    ("gfx1150", 0x43),
    ("gfx1151", 0x4a),
    ("gfx1152", 0x55),
    ("gfx1200", 0x48),
    ("gfx1201", 0x4e),
];

/// A code object, as far as whoever loads it needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// The chip, such as `gfx1101`.
    pub target: &'static str,
    /// Its kernels, in the order of their names.
    pub kernels: Vec<Kernel>,
}

/// A kernel of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name.
    pub name: String,
    /// Bytes of each argument, in order.
    pub arguments: Vec<usize>,
    /// Arguments that the runtime adds by itself.
    pub hidden_arguments: usize,
    /// Lanes of a wave.
    pub wave: u32,
    /// Most threads of a group.
    pub threads: u32,
    /// Vector registers of a lane.
    pub vector_registers: u32,
    /// Scalar registers of a wave.
    pub scalar_registers: u32,
    /// Vector registers that found no room: in accumulation registers where there are some, else in private memory.
    pub vector_spills: u32,
    /// Scalar registers that found no room: in lanes of vector registers, else in private memory.
    pub scalar_spills: u32,
    /// Bytes of shared memory of a group.
    pub shared_bytes: u32,
    /// Bytes of private memory of a thread, for spills and for arrays that are not in registers.
    pub private_bytes: u32,
}

impl CodeObject {
    /// Reads a code object.
    ///
    /// # Errors
    /// Bytes that are no code object, one for another target than those known here, and one without a list of kernels;
    /// the text says which.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let wrong = |error: object::Error| format!("no code object: {error}");
        let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(wrong)?;
        let endian = LittleEndian;
        if header.e_machine.get(endian) != MACHINE_AMDGPU {
            return Err("no code object: an ELF file for another processor".into());
        }
        let number = header.e_flags.get(endian) & 0xff;
        let target = TARGETS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name);
        let target = target.ok_or_else(|| format!("a code object for the unknown target {number:#x}"))?;
        let sections = header.sections(endian, bytes).map_err(wrong)?;
        for section in sections.iter().filter(|section| section.sh_type.get(endian) == SHT_NOTE) {
            let Some(mut notes) = section.notes(endian, bytes).map_err(wrong)? else { continue };
            while let Some(note) = notes.next().map_err(wrong)? {
                if note.n_type(endian) == NOTE_METADATA {
                    return Ok(Self { target, kernels: kernels(note.desc())? });
                }
            }
        }
        Err("a code object without a list of its kernels".into())
    }

    /// A kernel by its name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
}

fn kernels(mut note: &[u8]) -> Result<Vec<Kernel>, String> {
    let map = rmpv::decode::read_value(&mut note).map_err(|error| format!("its list of kernels: {error}"))?;
    let list = field(&map, "amdhsa.kernels").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut kernels =
        list.iter().map(kernel).collect::<Option<Vec<_>>>().ok_or("a kernel that lacks a fact")?;
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(kernels)
}

fn kernel(map: &Value) -> Option<Kernel> {
    let number = |key: &str| u32::try_from(field(map, key)?.as_u64()?).ok();
    let (mut arguments, mut hidden_arguments) = (Vec::new(), 0);
    for argument in field(map, ".args").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) {
        match field(argument, ".value_kind")?.as_str()?.starts_with("hidden_") {
            true => hidden_arguments += 1,
            false => arguments.push(usize::try_from(field(argument, ".size")?.as_u64()?).ok()?),
        }
    }
    Some(Kernel {
        name: field(map, ".name")?.as_str()?.to_owned(),
        arguments,
        hidden_arguments,
        wave: number(".wavefront_size")?,
        threads: number(".max_flat_workgroup_size")?,
        vector_registers: number(".vgpr_count")?,
        scalar_registers: number(".sgpr_count")?,
        vector_spills: number(".vgpr_spill_count")?,
        scalar_spills: number(".sgpr_spill_count")?,
        shared_bytes: number(".group_segment_fixed_size")?,
        private_bytes: number(".private_segment_fixed_size")?,
    })
}

#[cfg(all(test, feature = "hip"))]
mod tests {
    use super::CodeObject;
    use crate::images::hip;
    use crate::tuning::Tuning;

    /// Every image is for the target that it is given out for, has the kernels that the table says, takes one structure
    /// in each, and has nothing in memory that belongs into registers.
    #[test]
    fn images_are_what_they_are_said_to_be() {
        for &target in hip::targets() {
            let images = hip::images(target).expect("images");
            let mut found = 0;
            for image in &images {
                let object = CodeObject::read(&image.bytes).unwrap_or_else(|why| panic!("{target}: {why}"));
                assert_eq!(object.target, target);
                for kernel in &object.kernels {
                    let name = &kernel.name;
                    assert_eq!(hip::module_of(name), Some(image.module), "{target}: {name}");
                    assert_eq!((kernel.arguments.len(), kernel.hidden_arguments), (1, 0), "{target}: {name}");
                    assert_eq!(kernel.wave, Tuning::of(target).wave, "{target}: {name}");
                    assert_eq!(kernel.private_bytes, 0, "{target}: {name}");
                    found += 1;
                }
            }
            assert_eq!(found, hip::entries().len(), "{target}");
        }
    }

    #[test]
    fn what_is_no_code_object_is_refused() {
        assert!(CodeObject::read(b"").is_err());
        assert!(CodeObject::read(&[0x7f; 4096]).is_err());
        let image = &hip::images("gfx906").expect("images")[0].bytes;
        for length in [1, 16, 63, 64, 65, 1000, image.len() / 2, image.len() - 1] {
            assert!(CodeObject::read(&image[..length]).is_err(), "{length}");
        }
        let mut other = image.clone();
        other[18] = 62;
        assert!(CodeObject::read(&other).unwrap_err().contains("another processor"));
        other[18] = 224;
        other[48] = 0xfe;
        assert!(CodeObject::read(&other).unwrap_err().contains("0xfe"));
    }
}
