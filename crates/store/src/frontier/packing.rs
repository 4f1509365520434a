//! Packing: URLs of a host repeat each other, so that a chunk of a queue takes a quarter of its text on disk.

use zstd::bulk::{Compressor, Decompressor};

use crate::{Error, Result};

/// zstd's quickest level but for those that hardly pack.
const LEVEL: i32 = 1;
/// Bytes before what is packed: how long it was.
const HEAD_BYTES: usize = 4;
/// Nothing that was packed is longer: a chunk ends with the URL that makes it long enough.
const UNPACKED_BYTES_MAX: usize = 1 << 20;

/// Packs and unpacks. What both need for that is made once.
#[derive(Default)]
pub(super) struct Packer {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
}

impl Packer {
    /// Packs `bytes` to the end of `out`.
    pub(super) fn pack(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let failed = Error::io("pack", "a chunk of a queue".as_ref());
        let packed = match &mut self.compressor {
            Some(compressor) => compressor.compress(bytes),
            None => Compressor::new(LEVEL)
                .and_then(|compressor| self.compressor.insert(compressor).compress(bytes)),
        };
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&packed.map_err(failed)?);
        Ok(())
    }

    /// Unpacks into `out`, replacing what is there. `None` if nothing was packed to this.
    pub(super) fn unpack(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (length, packed) = packed.split_first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > UNPACKED_BYTES_MAX {
            return None;
        }
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            None => self.decompressor.insert(Decompressor::new().ok()?),
        };
        out.clear();
        out.reserve_exact(length);
        let unpacked = decompressor.decompress_to_buffer(packed, out).ok()?;
        (unpacked == length && out.len() == length).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back_and_nothing_else_does() {
        let mut packer = Packer::default();
        let text: Vec<u8> =
            (0..200).flat_map(|number| format!("http://a.example/page/{number}").into_bytes()).collect();
        let mut again = vec![7; 3];
        for bytes in [&text[..], &text[..1], &text[..100]] {
            let mut packed = b"head".to_vec();
            packer.pack(bytes, &mut packed).unwrap();
            assert!(packer.unpack(&packed[4..], &mut again).is_some());
            assert_eq!(again, bytes);
            assert!((4..packed.len()).all(|end| packer.unpack(&packed[4..end], &mut again).is_none()));
            packed[4] ^= 1;
            assert!(packer.unpack(&packed[4..], &mut again).is_none());
        }
        let mut packed = Vec::new();
        packer.pack(&text, &mut packed).unwrap();
        assert!(packed.len() * 4 < text.len());
        packed[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(packer.unpack(&packed, &mut again).is_none());
    }
}
