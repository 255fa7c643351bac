//! What instruction counts depend on beside the source: the compiler, the target, what the processor can do.

/// The setting of this program, as JSON.
pub fn json() -> String {
    let setting = serde_json::json!({
        "rustc": env!("RINGMICRO_RUSTC"),
        "target": env!("RINGMICRO_TARGET"),
        "processor": abilities().join(" "),
    });
    setting.to_string()
}

/// The abilities that libraries choose their code by at run time. Valgrind has fewer than the processor below it.
#[cfg(target_arch = "x86_64")]
fn abilities() -> Vec<&'static str> {
    let known = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    let had = known.into_iter().filter(|(_, has)| *has);
    had.map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn abilities() -> Vec<&'static str> {
    Vec::new()
}
