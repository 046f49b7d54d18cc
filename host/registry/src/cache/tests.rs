use super::*;

const LOADING: &str = "surroundings";

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, content: &str) -> (PathBuf, FileIdentity) {
        let path = self.folder.path().join("plugin");
        fs::write(&path, content).unwrap();
        let identity = FileIdentity::of(&fs::metadata(&path).unwrap());
        (path, identity)
    }

    fn cache(&self) -> Cache {
        Cache::open(Some(&self.folder.path().join("cache")))
    }

    fn keep(&self, verdict: &Verdict<Described>) {
        let (path, identity) = self.file("one");
        let mut cache = self.cache();
        cache.keep_described(&path, identity, LOADING, verdict);
        cache.save();
    }

    fn known(&self, surroundings: &str) -> Option<Verdict<Described>> {
        let path = self.folder.path().join("plugin");
        let identity = FileIdentity::of(&fs::metadata(&path).unwrap());
        self.cache().described(&path, identity, surroundings)
    }

    /// Makes what is kept older.
    fn age(&self, seconds: u64) {
        let folder = self.folder.path().join("cache");
        let mut stored = read(&folder);
        for entry in stored.files.values_mut() {
            entry.describe.as_mut().unwrap().seconds -= seconds;
        }
        fs::write(folder.join(FILE_NAME), serde_json::to_vec(&stored).unwrap()).unwrap();
    }
}

fn good() -> Verdict<Described> {
    Ok(Described { interfaces: vec!["paceline.backend/1".to_owned()] })
}

fn bad(cause: Cause) -> Verdict<Described> {
    Err(Failure::new(Phase::Describe, cause))
}

#[test]
fn a_verdict_holds_while_nothing_changes() {
    let case = Case::new();
    case.keep(&good());
    assert_eq!(case.known(LOADING), Some(good()));
    assert_eq!(case.known("other surroundings"), None);
    case.age(1000 * HOUR);
    assert_eq!(case.known(LOADING), Some(good()));
    // Written again with the same content, the file is another one that is just as good.
    case.file("one");
    assert_eq!(case.known(LOADING), Some(good()));
    case.file("two");
    assert_eq!(case.known(LOADING), None);
}

#[test]
fn failures_are_forgotten_after_a_while() {
    let refused = Cause::Refused { reason: "no".to_owned(), hint: None };
    let cases = [
        (Cause::Crashed { signal: 11 }, Some(HOUR)),
        (Cause::NoAnswer { exit_code: 0 }, Some(HOUR)),
        (Cause::TimedOut { limit_ms: 10 }, Some(FIVE_MINUTES)),
        (Cause::NotLoadable { reason: "no".to_owned(), hint: None }, Some(FIVE_MINUTES)),
        (refused, None),
    ];
    for (cause, lifetime) in cases {
        let case = Case::new();
        let verdict = bad(cause);
        case.keep(&verdict);
        assert_eq!(case.known(LOADING).as_ref(), Some(&verdict));
        case.age(lifetime.unwrap_or(1000 * HOUR) - 10);
        assert_eq!(case.known(LOADING).as_ref(), Some(&verdict));
        case.age(10);
        assert_eq!(case.known(LOADING), lifetime.is_none().then_some(verdict));
    }
}

#[test]
fn a_verdict_from_the_future_does_not_hold() {
    let case = Case::new();
    case.keep(&good());
    let folder = case.folder.path().join("cache");
    let mut stored = read(&folder);
    stored.files.values_mut().next().unwrap().describe.as_mut().unwrap().seconds += HOUR;
    fs::write(folder.join(FILE_NAME), serde_json::to_vec(&stored).unwrap()).unwrap();
    assert_eq!(case.known(LOADING), None);
}

#[test]
fn a_damaged_cache_is_an_empty_one() {
    let case = Case::new();
    case.keep(&good());
    let file = case.folder.path().join("cache").join(FILE_NAME);
    let whole = fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", b"[]", b"{\"format\":2,\"files\":{}}"] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(case.known(LOADING), None);
    }
    case.keep(&good());
    assert_eq!(case.known(LOADING), Some(good()));
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let case = Case::new();
    let files: Vec<PathBuf> =
        (0..16).map(|index| case.folder.path().join(format!("plugin-{index}"))).collect();
    std::thread::scope(|scope| {
        for path in &files {
            let case = &case;
            scope.spawn(move || {
                fs::write(path, "content").unwrap();
                let mut cache = case.cache();
                let identity = FileIdentity::of(&fs::metadata(path).unwrap());
                cache.keep_described(path, identity, LOADING, &good());
                cache.save();
            });
        }
    });
    let mut cache = case.cache();
    for path in &files {
        let identity = FileIdentity::of(&fs::metadata(path).unwrap());
        assert_eq!(cache.described(path, identity, LOADING), Some(good()));
    }
    let folder = fs::read_dir(case.folder.path().join("cache")).unwrap();
    let names: Vec<_> = folder.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_marker_that_is_left_names_the_culprit_once_its_process_is_gone() {
    let case = Case::new();
    let (path, identity) = case.file("one");
    let folder = case.folder.path().join("cache");
    let marker = Marker::place(&folder, &path, identity, Phase::Describe).unwrap();
    assert_eq!(case.known(LOADING), None, "its process lives");
    // What a process leaves that ends: the file, without its lock.
    let left = fs::read(&marker.place).unwrap();
    let place = marker.place.clone();
    drop(marker);
    assert!(!place.exists());
    fs::write(&place, left).unwrap();
    let verdict = bad(Cause::EndedAnEarlierRun);
    assert_eq!(case.known(LOADING).as_ref(), Some(&verdict));
    assert_eq!(case.known("whatever").as_ref(), Some(&verdict), "it is remembered");
    forget(&folder).unwrap();
    assert_eq!(case.known(LOADING), None);
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let case = Case::new();
    let (path, identity) = case.file("one");
    let mut cache = Cache::open(Some(&path.join("below-a-file")));
    cache.keep_described(&path, identity, LOADING, &good());
    cache.save();
    assert_eq!(cache.described(&path, identity, LOADING), Some(good()));
    assert!(cache.mark(&path, identity, Phase::Describe).is_none());
}
