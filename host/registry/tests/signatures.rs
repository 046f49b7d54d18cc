//! Signatures of plugin files: not looked at, asked for, or required.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use minisign::KeyPair;
use paceline_registry::settings::{ConfigFile, Layer, PluginSet};
use paceline_registry::{DiscoverConfig, PluginStore, Registry, SignaturePolicy, Signatures, TrustedKey};
use support::{CPlugin, Case};

fn signature(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".minisig");
    name.into()
}

fn sign(path: &Path, keys: &KeyPair) {
    let file = fs::File::open(path).unwrap();
    let signed = minisign::sign(Some(&keys.pk), &keys.sk, file, None, None).unwrap();
    fs::write(signature(path), signed.into_string()).unwrap();
}

fn keys() -> KeyPair {
    KeyPair::generate_unencrypted_keypair().unwrap()
}

fn trusting(policy: SignaturePolicy, keys: &[&KeyPair]) -> Signatures {
    let keys = keys.iter().map(|keys| TrustedKey::parse(&keys.pk.to_base64()).unwrap());
    Signatures { policy, keys: keys.collect() }
}

/// What comes of the plugin, and what is warned of.
fn outcome(case: &Case, signatures: &Signatures) -> String {
    let config = DiscoverConfig { signatures: signatures.clone(), ..case.config() };
    let candidates = Registry::discover(&config);
    let path = case.file("liba.so").canonicalize().unwrap();
    let candidate = candidates.list().iter().find(|candidate| candidate.path == path).unwrap();
    let warnings: Vec<String> =
        candidate.warnings.iter().map(|warning| support::without(warning, case.root())).collect();
    let state = case.state(&candidates, &case.file("liba.so"));
    format!("{state}{}", warnings.iter().map(|it| format!("\nwarning: {it}")).collect::<String>())
}

fn with_plugin() -> Case {
    let case = Case::new();
    CPlugin::new("alpha").build(&case.file("liba.so"));
    case
}

#[test]
fn a_file_is_used_if_someone_who_is_trusted_signed_it() {
    let (case, ours, others) = (with_plugin(), keys(), keys());
    let required = trusting(SignaturePolicy::Require, &[&others, &ours]);
    assert_snapshot!(outcome(&case, &required), @r"
    plugin file [folder]/plugins/liba.so: has no signature beside it, in liba.so.minisig
    hint: get it from whoever signs it, with the `.minisig` file, or trust their key in `[trust]` of registry.toml
    ");
    sign(&case.file("liba.so"), &ours);
    assert_eq!(outcome(&case, &required), "usable");
    assert_snapshot!(outcome(&case, &trusting(SignaturePolicy::Require, &[&others])), @r"
    plugin file [folder]/plugins/liba.so: is signed with a key that is not trusted
    hint: get it from whoever signs it, with the `.minisig` file, or trust their key in `[trust]` of registry.toml
    ");
    assert_snapshot!(outcome(&case, &trusting(SignaturePolicy::Require, &[])), @r"
    plugin file [folder]/plugins/liba.so: is signed with a key that is not trusted
    hint: get it from whoever signs it, with the `.minisig` file, or trust their key in `[trust]` of registry.toml
    ");
    // Other content under the same signature.
    CPlugin::new("alpha").with_lines("summary = \"another one\"\n").build(&case.file("liba.so"));
    assert_snapshot!(outcome(&case, &required), @r"
    plugin file [folder]/plugins/liba.so: has a signature of other content, or one that was forged
    hint: get it from whoever signs it, with the `.minisig` file, or trust their key in `[trust]` of registry.toml
    ");
    fs::write(signature(&case.file("liba.so")), "untrusted comment: x\nno signature\n").unwrap();
    assert!(outcome(&case, &required).contains("has a signature that makes no sense"));
}

#[test]
fn a_warning_is_enough_where_a_file_says_so() {
    let (case, ours) = (with_plugin(), keys());
    assert_eq!(outcome(&case, &Signatures::default()), "usable");
    let asked = trusting(SignaturePolicy::Warn, &[&ours]);
    assert_snapshot!(outcome(&case, &asked), @r"
    usable
    warning: plugin file [folder]/plugins/liba.so has no signature beside it, in liba.so.minisig
    ");
    sign(&case.file("liba.so"), &ours);
    assert_eq!(outcome(&case, &asked), "usable");
}

/// What stands beside a library decides what it is, so it has to be signed too.
#[test]
fn a_descriptor_beside_the_file_is_signed_too() {
    let (case, ours) = (Case::new(), keys());
    let text = CPlugin::new("alpha").text();
    CPlugin::new("alpha").define("NO_SECTION", "1").build(&case.file("liba.so"));
    let descriptor = case.file("liba.so.plugin.toml");
    fs::write(&descriptor, text).unwrap();
    sign(&case.file("liba.so"), &ours);
    let required = trusting(SignaturePolicy::Require, &[&ours]);
    assert_snapshot!(outcome(&case, &required), @r"
    plugin file [folder]/plugins/liba.so: has a descriptor beside it, liba.so.plugin.toml, that has no signature beside it, in liba.so.plugin.toml.minisig
    hint: get it from whoever signs it, with the `.minisig` file, or trust their key in `[trust]` of registry.toml
    ");
    sign(&descriptor, &ours);
    assert_eq!(outcome(&case, &required), "usable");
}

/// A signature goes where its file goes.
#[test]
fn signatures_are_installed_and_removed() {
    let (case, ours) = (Case::new(), keys());
    let source = case.outside("libalpha.so");
    CPlugin::new("alpha").build(&source);
    sign(&source, &ours);
    let store = PluginStore::new(case.plugins());
    let installed = store.install(&source, None, false).unwrap();
    let required = trusting(SignaturePolicy::Require, &[&ours]);
    assert!(required.check(&installed.path).unwrap().is_some());
    // One that is replaced without a signature has none.
    fs::remove_file(signature(&source)).unwrap();
    CPlugin::new("alpha").with_lines("summary = \"another one\"\n").build(&source);
    store.install(&source, None, true).unwrap();
    assert!(required.check(&installed.path).is_err());
    assert!(!signature(&installed.path).exists());
    sign(&source, &ours);
    CPlugin::new("alpha").with_lines("summary = \"a third one\"\n").build(&source);
    store.install(&source, None, true).unwrap();
    store.remove("alpha", None).unwrap();
    assert!(!signature(&installed.path).exists());
}

#[test]
fn files_of_settings_say_what_is_asked() {
    let ours = keys().pk.to_base64();
    let read = |layer, text: &str| ConfigFile::parse("file", &format!("schema = 1\n{text}"), layer);
    let fault = |text: &str| read(Layer::User, text).unwrap_err().to_string();
    assert_snapshot!(fault("[trust]\nsignatures = \"sometimes\"\n"), @"file:3:14: `signatures` takes `off`, `warn` or `require`, not the text `sometimes`");
    assert_snapshot!(fault("[trust]\nkeys = [\"RWshort\"]\n"), @"file:3:9: `RWshort` is no public key of minisign, which has 56 characters and begins with `RW`");
    assert_snapshot!(fault("[trust]\nkey = []\n"), @"file:3:1: the key `key` is not known in `trust`; did you mean `keys`?");
    let site = read(Layer::Site, &format!("[trust]\nsignatures = \"warn\"\nkeys = [\"{ours}\"]\n")).unwrap();
    let user = read(Layer::User, "[trust]\nsignatures = \"require\"\n").unwrap();
    let merged = PluginSet::of(&[user.clone(), site]).unwrap().signatures;
    assert_eq!((merged.policy, merged.keys.len()), (SignaturePolicy::Require, 1));
    let without_keys = PluginSet::of(&[user]).unwrap_err();
    assert_snapshot!(without_keys.0[0], @"file:3:14: signatures are asked for, and no key is trusted: name some in `keys`");
    assert_eq!(PluginSet::of(&[]).unwrap().signatures.policy, SignaturePolicy::Off);
}
