//! Masking (RFC 6455, section 5.3), in place and many bytes at a time.

/// Takes `mask` off `bytes`, of whose frame `done` bytes came before (only their number modulo 4 matters).
pub(super) fn unmask(bytes: &mut [u8], mask: [u8; 4], done: usize) {
    if mask == [0; 4] {
        return;
    }
    // Blocks of a fixed size become wide instructions.
    let wide: [u8; BLOCK] = std::array::from_fn(|at| mask[(at + done) % 4]);
    let (blocks, rest) = bytes.as_chunks_mut::<BLOCK>();
    for block in blocks {
        for (byte, key) in block.iter_mut().zip(&wide) {
            *byte ^= key;
        }
    }
    for (byte, key) in rest.iter_mut().zip(&wide) {
        *byte ^= key;
    }
}

const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_unmasked_as_the_standard_says_wherever_they_are_cut() {
        let mask = [1, 20, 77, 200];
        let plain: Vec<u8> = (0..=255).cycle().take(300).collect();
        let masked = plain.iter().zip(mask.iter().cycle());
        let masked: Vec<u8> = masked.map(|(byte, key)| byte ^ key).collect();
        for cut in 0..masked.len() {
            let mut bytes = masked.clone();
            let (front, back) = bytes.split_at_mut(cut);
            unmask(front, mask, 0);
            unmask(back, mask, cut);
            assert!(bytes == plain, "cut at {cut}");
        }
    }
}
