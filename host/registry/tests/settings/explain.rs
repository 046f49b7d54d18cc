//! What people see.

use insta::assert_snapshot;
use paceline_registry::settings::{
    ContextFacts, DrafterPlace, Layer, Link, ModelFacts, Placement, Report, Role,
};

use super::support::{World, backend, llama, offer, on, over, qwen35, sorted_json};

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, reason)| ((*id).to_owned(), (*reason).to_owned())).collect()
}

/// A situation to explain.
struct Situation {
    world: World,
    title: &'static str,
    facts: ContextFacts,
    not_used: Vec<(String, String)>,
    strategies: Vec<String>,
    refused: Vec<(String, String)>,
    /// A setting that turned out not to be possible, and why.
    impossible: Option<(&'static str, &'static str)>,
}

impl Situation {
    fn new(world: World, title: &'static str, facts: ContextFacts) -> Self {
        let strategies = ["ngram-adaptive", "mtp-chain", "gdn-replay"].map(str::to_owned).to_vec();
        Self { world, title, facts, not_used: vec![], strategies, refused: vec![], impossible: None }
    }

    fn strategies(mut self, ids: &[&str], refused: &[(&str, &str)]) -> Self {
        self.strategies = ids.iter().map(|&id| id.to_owned()).collect();
        self.refused = pairs(refused);
        self
    }

    fn not_used(mut self, not_used: &[(&str, &str)]) -> Self {
        self.not_used = pairs(not_used);
        self
    }

    fn report<R>(&self, show: impl FnOnce(&Report<'_>) -> R) -> R {
        let resolver = self.world.resolver().unwrap();
        let before = resolver.before_placement(self.facts.model()).unwrap();
        let used = self.strategies.iter().cloned().collect();
        let mut resolution = resolver.on_placement(&self.facts, &used, &before).unwrap();
        if let Some((key, because)) = self.impossible {
            resolution.refuse(key, because).unwrap();
        }
        show(&Report {
            title: self.title,
            facts: &self.facts,
            resolution: &resolution,
            schema: resolver.schema(),
            not_used: &self.not_used,
            fallback: &[],
            strategies: &self.strategies,
            refused: &self.refused,
        })
    }

    fn text(&self) -> String {
        self.report(|report| report.text())
    }

    fn why(&self, key: &str) -> String {
        self.report(|report| report.why(key).unwrap_or_else(|fault| fault.to_string()))
    }
}

fn cpu() -> Situation {
    Situation::new(World::shipped(), "demo-qwen35 Q8_0", on(qwen35(), &offer("cpu", 0)))
        .strategies(
            &["ngram-adaptive", "mtp-chain", "gdn-replay"],
            &[("dflash", "no drafter is given (--draft)")],
        )
        .not_used(&[("rocm", "no driver (libamdhip64.so.* is not there)")])
}

/// The shipped plugins, and two more backends.
fn two_cards() -> World {
    let mut world = World::shipped();
    world.plugins.extend([backend("cuda"), backend("sycl")]);
    world
}

#[test]
fn a_recurrent_model_on_the_processor() {
    assert_snapshot!(cpu().text(), @r"
    model       demo-qwen35 Q8_0: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cpu:0 (cpu 0.1.0)
    not used    rocm: no driver (libamdhip64.so.* is not there)
    strategies  ngram-adaptive, mtp-chain, gdn-replay
    refused     dflash: no drafter is given (--draft)

    setting                      value   from                                                     instead of
    context                      4096    what the model was trained for, at most 8192             -
    cpu.level                    auto    default of cpu                                           -
    cpu.threads                  0       default of cpu                                           -
    kv_types                     f16     built-in default                                         -
    launch_timeout               600     built-in default                                         -
    microbatch                   512     built-in default                                         -
    mtp-chain.depth              0       default of mtp-chain                                     -
    mtp-chain.draw               on      default of mtp-chain                                     -
    mtp-chain.form               chain   default of mtp-chain                                     -
    mtp-chain.head               auto    default of mtp-chain                                     trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on      rule registry.toml:35 (backend = cpu)                    -
    mtp-chain.least_probability  0       default of mtp-chain                                     -
    ngram-adaptive.floor         1       default of ngram-adaptive                                -
    ngram-adaptive.match         4       default of ngram-adaptive                                -
    ngram-adaptive.most          256     default of ngram-adaptive                                -
    ngram-adaptive.start         64      default of ngram-adaptive                                -
    sequences                    1       built-in default                                         -
    speculation.acceptance       agree   built-in default                                         -
    speculation.controller       on      built-in default                                         -
    speculation.most_verified    15      built-in default                                         -
    speculation.rollback         replay  rule registry.toml:20 (backend = cpu, arch = qwen35, …)  snapshots (built-in default)
    speculation.select           value   built-in default                                         -

    measured  mtp-chain.kv_only: drafts are the same as after the whole pass (tests/e2e/mtp_drafts.rs)
    untested  mtp-chain.kv_only: the time that it saves; other backends, where the default of the plugin is the same
    measured  speculation.rollback: the logits and texts of tests/e2e/rollback.rs and speculation.rs are the same, to the bit, as with snapshots
    untested  speculation.rollback: speed against snapshots; other backends, families and rollback strategies, where snapshots stay the default
    ");
}

#[test]
fn a_model_without_recurrent_layers_and_strategies() {
    let situation =
        Situation::new(World::shipped(), "llama Q8_0", on(llama(), &offer("cpu", 0))).strategies(&[], &[]);
    assert_snapshot!(situation.text(), @r"
    model       llama Q8_0: llama, 8 layers
    placement   layers 0-7 on cpu:0 (cpu 0.1.0)
    strategies  none

    setting         value  from                                          instead of
    context         4096   what the model was trained for, at most 8192  -
    cpu.level       auto   default of cpu                                -
    cpu.threads     0      default of cpu                                -
    kv_types        f16    built-in default                              -
    launch_timeout  600    built-in default                              -
    microbatch      512    built-in default                              -
    sequences       1      built-in default                              -
    ");
}

#[test]
fn a_model_on_one_of_two_cards() {
    let situation = Situation::new(two_cards(), "qwen35-27b Q4_K_M", on(qwen35(), &offer("cuda", 0)))
        .not_used(&[("cpu", "not preferred"), ("sycl", "not preferred")]);
    assert_snapshot!(situation.text(), @r"
    model       qwen35-27b Q4_K_M: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cuda:0 (cuda 0.1.0)
    not used    cpu: not preferred
    not used    sycl: not preferred
    strategies  ngram-adaptive, mtp-chain, gdn-replay

    setting                      value      from                                          instead of
    context                      4096       what the model was trained for, at most 8192  -
    cuda.capture                 on         rule in plugin cuda, line 19 (sequences = 1)  off (default of cuda)
    cuda.streams                 1          default of cuda                               -
    kv_types                     f16        built-in default                              -
    launch_timeout               600        built-in default                              -
    microbatch                   512        built-in default                              -
    mtp-chain.depth              0          default of mtp-chain                          -
    mtp-chain.draw               on         default of mtp-chain                          -
    mtp-chain.form               chain      default of mtp-chain                          -
    mtp-chain.head               auto       default of mtp-chain                          trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on         default of mtp-chain                          -
    mtp-chain.least_probability  0          default of mtp-chain                          -
    ngram-adaptive.floor         1          default of ngram-adaptive                     -
    ngram-adaptive.match         4          default of ngram-adaptive                     -
    ngram-adaptive.most          256        default of ngram-adaptive                     -
    ngram-adaptive.start         64         default of ngram-adaptive                     -
    sequences                    1          built-in default                              -
    speculation.acceptance       agree      built-in default                              -
    speculation.controller       on         built-in default                              -
    speculation.most_verified    15         built-in default                              -
    speculation.rollback         snapshots  built-in default                              replay (rule registry.toml:20 needs backend = cpu, here cuda)
    speculation.select           value      built-in default                              -

    measured  cuda.capture: a bench of cuda
    ");
}

#[test]
fn layers_on_cards_of_two_makers() {
    let facts = over(qwen35(), &offer("cuda", 0), &offer("sycl", 0));
    assert_snapshot!(Situation::new(two_cards(), "qwen35-27b Q4_K_M", facts).text(), @r"
    model       qwen35-27b Q4_K_M: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-3 on cuda:0 (cuda 0.1.0)
                layers 4-7 on sycl:0 (sycl 0.1.0)
    strategies  ngram-adaptive, mtp-chain, gdn-replay

    setting                      value      from                                          instead of
    context                      4096       what the model was trained for, at most 8192  -
    cuda.capture                 on         rule in plugin cuda, line 19 (sequences = 1)  off (default of cuda)
    cuda.streams                 1          default of cuda                               -
    kv_types                     f16        built-in default                              -
    launch_timeout               600        built-in default                              -
    microbatch                   512        built-in default                              -
    mtp-chain.depth              0          default of mtp-chain                          -
    mtp-chain.draw               on         default of mtp-chain                          -
    mtp-chain.form               chain      default of mtp-chain                          -
    mtp-chain.head               auto       default of mtp-chain                          trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on         default of mtp-chain                          -
    mtp-chain.least_probability  0          default of mtp-chain                          -
    ngram-adaptive.floor         1          default of ngram-adaptive                     -
    ngram-adaptive.match         4          default of ngram-adaptive                     -
    ngram-adaptive.most          256        default of ngram-adaptive                     -
    ngram-adaptive.start         64         default of ngram-adaptive                     -
    sequences                    1          built-in default                              -
    speculation.acceptance       agree      built-in default                              -
    speculation.controller       on         built-in default                              -
    speculation.most_verified    15         built-in default                              -
    speculation.rollback         snapshots  built-in default                              replay (rule registry.toml:20 needs backend = cpu, here cuda and sycl)
    speculation.select           value      built-in default                              -
    sycl.capture                 on         rule in plugin sycl, line 19 (sequences = 1)  off (default of sycl)
    sycl.streams                 1          default of sycl                               -

    measured  cuda.capture: a bench of cuda
    measured  sycl.capture: a bench of sycl
    ");
}

#[test]
fn two_cards_that_share_every_layer() {
    let placement = Placement::new(qwen35()).layers(0..8, &offer("cuda", 0)).layers(0..8, &offer("cuda", 1));
    let facts = placement.tensor_groups(2).link(Link::Peer).context(32768).commit().unwrap();
    assert_snapshot!(Situation::new(two_cards(), "qwen35-27b Q4_K_M", facts).text(), @r"
    model       qwen35-27b Q4_K_M: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cuda:0 (cuda 0.1.0), cuda:1 (cuda 0.1.0)
                each layer split over 2 devices
    strategies  ngram-adaptive, mtp-chain, gdn-replay

    setting                      value      from                                          instead of
    context                      32768      what the model was trained for, at most 8192  -
    cuda.capture                 on         rule in plugin cuda, line 19 (sequences = 1)  off (default of cuda)
    cuda.streams                 1          default of cuda                               -
    kv_types                     f16        built-in default                              -
    launch_timeout               600        built-in default                              -
    microbatch                   512        built-in default                              -
    mtp-chain.depth              0          default of mtp-chain                          -
    mtp-chain.draw               on         default of mtp-chain                          -
    mtp-chain.form               chain      default of mtp-chain                          -
    mtp-chain.head               auto       default of mtp-chain                          trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on         default of mtp-chain                          -
    mtp-chain.least_probability  0          default of mtp-chain                          -
    ngram-adaptive.floor         1          default of ngram-adaptive                     -
    ngram-adaptive.match         4          default of ngram-adaptive                     -
    ngram-adaptive.most          256        default of ngram-adaptive                     -
    ngram-adaptive.start         64         default of ngram-adaptive                     -
    sequences                    1          built-in default                              -
    speculation.acceptance       agree      built-in default                              -
    speculation.controller       on         built-in default                              -
    speculation.most_verified    15         built-in default                              -
    speculation.rollback         snapshots  built-in default                              replay (rule registry.toml:20 needs backend = cpu, here cuda)
    speculation.select           value      built-in default                              -

    measured  cuda.capture: a bench of cuda
    ");
}

#[test]
fn several_sequences() {
    let facts =
        Placement::new(qwen35()).layers(0..8, &offer("cpu", 0)).sequences(4).context(4096).commit().unwrap();
    let mut situation = cpu();
    situation.world = situation.world.set("sequences", "4");
    assert_snapshot!(Situation { facts, ..situation }.text(), @r"
    model       demo-qwen35 Q8_0: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cpu:0 (cpu 0.1.0)
    not used    rocm: no driver (libamdhip64.so.* is not there)
    strategies  ngram-adaptive, mtp-chain, gdn-replay
    refused     dflash: no drafter is given (--draft)

    setting                      value      from                                          instead of
    context                      4096       what the model was trained for, at most 8192  -
    cpu.level                    auto       default of cpu                                -
    cpu.threads                  0          default of cpu                                -
    kv_types                     f16        built-in default                              -
    launch_timeout               600        built-in default                              -
    microbatch                   512        built-in default                              -
    mtp-chain.depth              0          default of mtp-chain                          -
    mtp-chain.draw               on         default of mtp-chain                          -
    mtp-chain.form               chain      default of mtp-chain                          -
    mtp-chain.head               auto       default of mtp-chain                          trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on         rule registry.toml:35 (backend = cpu)         -
    mtp-chain.least_probability  0          default of mtp-chain                          -
    ngram-adaptive.floor         1          default of ngram-adaptive                     -
    ngram-adaptive.match         4          default of ngram-adaptive                     -
    ngram-adaptive.most          256        default of ngram-adaptive                     -
    ngram-adaptive.start         64         default of ngram-adaptive                     -
    sequences                    4          --set                                         1 (built-in default)
    speculation.acceptance       agree      built-in default                              -
    speculation.controller       on         built-in default                              -
    speculation.most_verified    15         built-in default                              -
    speculation.rollback         snapshots  built-in default                              replay (rule registry.toml:20 needs sequences = 1, here 4)
    speculation.select           value      built-in default                              -

    measured  mtp-chain.kv_only: drafts are the same as after the whole pass (tests/e2e/mtp_drafts.rs)
    untested  mtp-chain.kv_only: the time that it saves; other backends, where the default of the plugin is the same
    ");
}

#[test]
fn values_from_everywhere() {
    let mut situation = cpu();
    situation.world = situation
        .world
        .file(Layer::Site, "[settings]\ncontext = 2048\n[plugin.mtp-chain.settings]\ndepth = 2\n")
        .file(
            Layer::User,
            "[plugin.mtp-chain.settings]\ndepth = 3\n[plugin.ngram-adaptive.settings]\nmatch = 6\n",
        )
        .variable("PACELINE_SPECULATION__ROLLBACK", "snapshots")
        .set("mtp-chain.depth", "4");
    situation.facts = Placement::new(qwen35()).layers(0..8, &offer("cpu", 0)).context(2048).commit().unwrap();
    assert_snapshot!(situation.text(), @r"
    model       demo-qwen35 Q8_0: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cpu:0 (cpu 0.1.0)
    not used    rocm: no driver (libamdhip64.so.* is not there)
    strategies  ngram-adaptive, mtp-chain, gdn-replay
    refused     dflash: no drafter is given (--draft)

    setting                      value      from                                   instead of
    context                      2048       /etc/paceline/registry.toml:3          auto (built-in default)
    cpu.level                    auto       default of cpu                         -
    cpu.threads                  0          default of cpu                         -
    kv_types                     f16        built-in default                       -
    launch_timeout               600        built-in default                       -
    microbatch                   512        built-in default                       -
    mtp-chain.depth              4          --set                                  3 (~/.config/paceline/registry.toml:3) and 2 more
    mtp-chain.draw               on         default of mtp-chain                   -
    mtp-chain.form               chain      default of mtp-chain                   -
    mtp-chain.head               auto       default of mtp-chain                   trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on         rule registry.toml:35 (backend = cpu)  -
    mtp-chain.least_probability  0          default of mtp-chain                   -
    ngram-adaptive.floor         1          default of ngram-adaptive              -
    ngram-adaptive.match         6          ~/.config/paceline/registry.toml:5     4 (default of ngram-adaptive)
    ngram-adaptive.most          256        default of ngram-adaptive              -
    ngram-adaptive.start         64         default of ngram-adaptive              -
    sequences                    1          built-in default                       -
    speculation.acceptance       agree      built-in default                       -
    speculation.controller       on         built-in default                       -
    speculation.most_verified    15         built-in default                       -
    speculation.rollback         snapshots  PACELINE_SPECULATION__ROLLBACK         replay (rule registry.toml:20) and 1 more
    speculation.select           value      built-in default                       -

    overridden  `mtp-chain.depth` is 4 by --set; 3 by ~/.config/paceline/registry.toml:3 is overridden
    overridden  `mtp-chain.depth` is 4 by --set; 2 by /etc/paceline/registry.toml:5 is overridden
    measured    mtp-chain.kv_only: drafts are the same as after the whole pass (tests/e2e/mtp_drafts.rs)
    untested    mtp-chain.kv_only: the time that it saves; other backends, where the default of the plugin is the same
    ");
}

#[test]
fn a_site_that_sets_what_is_not_used_here() {
    let mut world = two_cards().file(Layer::Site, "[plugin.cuda.settings]\nstreams = 4\n");
    world = world.variable("PACELINE_DFLASH__DEPTH", "7");
    let situation = Situation::new(world, "demo-qwen35 Q8_0", on(qwen35(), &offer("cpu", 0)));
    assert_snapshot!(situation.text(), @r"
    model       demo-qwen35 Q8_0: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cpu:0 (cpu 0.1.0)
    strategies  ngram-adaptive, mtp-chain, gdn-replay

    setting                      value   from                                                     instead of
    context                      4096    what the model was trained for, at most 8192             -
    cpu.level                    auto    default of cpu                                           -
    cpu.threads                  0       default of cpu                                           -
    kv_types                     f16     built-in default                                         -
    launch_timeout               600     built-in default                                         -
    microbatch                   512     built-in default                                         -
    mtp-chain.depth              0       default of mtp-chain                                     -
    mtp-chain.draw               on      default of mtp-chain                                     -
    mtp-chain.form               chain   default of mtp-chain                                     -
    mtp-chain.head               auto    default of mtp-chain                                     trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on      rule registry.toml:35 (backend = cpu)                    -
    mtp-chain.least_probability  0       default of mtp-chain                                     -
    ngram-adaptive.floor         1       default of ngram-adaptive                                -
    ngram-adaptive.match         4       default of ngram-adaptive                                -
    ngram-adaptive.most          256     default of ngram-adaptive                                -
    ngram-adaptive.start         64      default of ngram-adaptive                                -
    sequences                    1       built-in default                                         -
    speculation.acceptance       agree   built-in default                                         -
    speculation.controller       on      built-in default                                         -
    speculation.most_verified    15      built-in default                                         -
    speculation.rollback         replay  rule registry.toml:20 (backend = cpu, arch = qwen35, …)  snapshots (built-in default)
    speculation.select           value   built-in default                                         -

    no effect  `cuda.streams` is 4 by /etc/paceline/registry.toml:3: `cuda` runs no layers here
    no effect  `dflash.depth` is 7 by PACELINE_DFLASH__DEPTH: `dflash` is not used here
    measured   mtp-chain.kv_only: drafts are the same as after the whole pass (tests/e2e/mtp_drafts.rs)
    untested   mtp-chain.kv_only: the time that it saves; other backends, where the default of the plugin is the same
    measured   speculation.rollback: the logits and texts of tests/e2e/rollback.rs and speculation.rs are the same, to the bit, as with snapshots
    untested   speculation.rollback: speed against snapshots; other backends, families and rollback strategies, where snapshots stay the default
    ");
}

#[test]
fn a_default_that_cannot_be_had() {
    let situation =
        Situation { impossible: Some(("speculation.rollback", "no memory for records")), ..cpu() };
    assert_snapshot!(situation.text(), @r"
    model       demo-qwen35 Q8_0: qwen35, 8 layers (6 recurrent, 2 attention), MTP head
    placement   layers 0-7 on cpu:0 (cpu 0.1.0)
    not used    rocm: no driver (libamdhip64.so.* is not there)
    strategies  ngram-adaptive, mtp-chain, gdn-replay
    refused     dflash: no drafter is given (--draft)

    setting                      value      from                                          instead of
    context                      4096       what the model was trained for, at most 8192  -
    cpu.level                    auto       default of cpu                                -
    cpu.threads                  0          default of cpu                                -
    kv_types                     f16        built-in default                              -
    launch_timeout               600        built-in default                              -
    microbatch                   512        built-in default                              -
    mtp-chain.depth              0          default of mtp-chain                          -
    mtp-chain.draw               on         default of mtp-chain                          -
    mtp-chain.form               chain      default of mtp-chain                          -
    mtp-chain.head               auto       default of mtp-chain                          trimmed (rule registry.toml:28 needs model.has_trimmed_head = true, here false)
    mtp-chain.kv_only            on         rule registry.toml:35 (backend = cpu)         -
    mtp-chain.least_probability  0          default of mtp-chain                          -
    ngram-adaptive.floor         1          default of ngram-adaptive                     -
    ngram-adaptive.match         4          default of ngram-adaptive                     -
    ngram-adaptive.most          256        default of ngram-adaptive                     -
    ngram-adaptive.start         64         default of ngram-adaptive                     -
    sequences                    1          built-in default                              -
    speculation.acceptance       agree      built-in default                              -
    speculation.controller       on         built-in default                              -
    speculation.most_verified    15         built-in default                              -
    speculation.rollback         snapshots  built-in default                              replay (rule registry.toml:20, refused: no memory for records)
    speculation.select           value      built-in default                              -

    measured  mtp-chain.kv_only: drafts are the same as after the whole pass (tests/e2e/mtp_drafts.rs)
    untested  mtp-chain.kv_only: the time that it saves; other backends, where the default of the plugin is the same
    ");
}

#[test]
fn a_drafter_has_facts_of_its_own() {
    let model = ModelFacts { role: Role::Drafter, drafter_kind: Some("dflash".to_owned()), ..llama() };
    let facts = Placement::new(model)
        .layers(0..8, &offer("sycl", 0))
        .drafter_place(DrafterPlace::OtherDevice)
        .context(2048)
        .commit()
        .unwrap();
    let mut world = two_cards().file(
        Layer::Site,
        "[[rule]]\nset = \"dflash.depth\"\nvalue = 5\nwhen = { role = \"drafter\", drafter.place = \"other-device\" }\n",
    );
    world.plugins.retain(|plugin| plugin.id != "mtp-chain");
    assert_snapshot!(Situation::new(world, "demo-dflash F16", facts).strategies(&["dflash"], &[]).text(), @r"
    drafter    demo-dflash F16: llama, 8 layers
    placement  layers 0-7 on sycl:0 (sycl 0.1.0)

    setting                    value      from                                                                               instead of
    context                    2048       what the model was trained for, at most 8192                                       -
    dflash.context             0          default of dflash                                                                  -
    dflash.depth               5          rule /etc/paceline/registry.toml:2 (role = drafter, drafter.place = other-device)  0 (default of dflash)
    dflash.draw                on         default of dflash                                                                  -
    kv_types                   f16        built-in default                                                                   -
    launch_timeout             600        built-in default                                                                   -
    microbatch                 512        built-in default                                                                   -
    sequences                  1          built-in default                                                                   -
    speculation.acceptance     agree      built-in default                                                                   -
    speculation.controller     on         built-in default                                                                   -
    speculation.most_verified  15         built-in default                                                                   -
    speculation.rollback       snapshots  built-in default                                                                   replay (rule registry.toml:20 needs backend = cpu, here no such layer)
    speculation.select         value      built-in default                                                                   -
    sycl.capture               on         rule in plugin sycl, line 19 (sequences = 1)                                       off (default of sycl)
    sycl.streams               1          default of sycl                                                                    -

    measured  sycl.capture: a bench of sycl
    ");
}

#[test]
fn why_a_setting_has_its_value() {
    assert_snapshot!(cpu().why("speculation.rollback"), @r"
    speculation.rollback = replay
    How recurrent state is taken back after wrong guesses. It takes one of replay, snapshots.

    from        rule registry.toml:20
    because     backend = cpu, arch = qwen35, recurrent_layers = all-on-one, sequences = 1, rollback.kind = gdn-replay, for recurrent layers
    measured    the logits and texts of tests/e2e/rollback.rs and speculation.rs are the same, to the bit, as with snapshots
    untested    speed against snapshots; other backends, families and rollback strategies, where snapshots stay the default
    instead of  snapshots by built-in default: rule registry.toml:20 is stronger
    decided     when the context is made, by what runs its layers
    set it      --set speculation.rollback=VALUE, PACELINE_SPECULATION__ROLLBACK=VALUE
    ");
    let cuda = Situation::new(two_cards(), "qwen35", on(qwen35(), &offer("cuda", 0)));
    assert_snapshot!(cuda.why("speculation.rollback"), @r"
    speculation.rollback = snapshots
    How recurrent state is taken back after wrong guesses. It takes one of replay, snapshots.

    from        built-in default
    instead of  replay by rule registry.toml:20 (backend = cpu, arch = qwen35, recurrent_layers = all-on-one, sequences = 1, rollback.kind = gdn-replay, for recurrent layers): it needs backend = cpu, and that is cuda here
    decided     when the context is made, by what runs its layers
    set it      --set speculation.rollback=VALUE, PACELINE_SPECULATION__ROLLBACK=VALUE
    ");
    assert_snapshot!(cuda.why("cuda.capture"), @r"
    cuda.capture = on
    Capture a token once. It takes on or off.

    from        rule in plugin cuda, line 19
    because     sequences = 1
    measured    a bench of cuda
    instead of  off by default of cuda: rule in plugin cuda, line 19 is stronger
    decided     when the context is made, by what runs its layers
    set it      --set cuda.capture=VALUE, PACELINE_CUDA__CAPTURE=VALUE
    ");
    assert_snapshot!(cuda.why("sycl.capture"), @r"
    sycl.capture has no effect in this context
    Capture a token once. It takes on or off.

    because  `sycl` runs no layers here
    decided  when the context is made, by what runs its layers
    set it   --set sycl.capture=VALUE, PACELINE_SYCL__CAPTURE=VALUE
    ");
    assert_snapshot!(cpu().why("context"), @r"
    context = 4096 positions
    Positions of a sequence, for what is read and what is written. It takes a whole number from 1 to 2147483647.

    from     built-in default: what the model was trained for, at most 8192
    decided  before layers are placed
    set it   --set context=VALUE, PACELINE_CONTEXT=VALUE
    ");
    let mut depth = cpu();
    depth.world = depth
        .world
        .file(Layer::User, "[plugin.mtp-chain.settings]\ndepth = 3\n")
        .variable("PACELINE_MTP_CHAIN__DEPTH", "auto")
        .set("mtp-chain.depth", "4");
    assert_snapshot!(depth.why("mtp-chain.depth"), @r"
    mtp-chain.depth = 4 tokens
    Length of drafts; 0 lets the host adapt it, up to 8. It takes a whole number from 0 to 15.

    from        --set
    instead of  auto by PACELINE_MTP_CHAIN__DEPTH: auto means not set
    instead of  3 by ~/.config/paceline/registry.toml:3: --set is stronger
    instead of  0 by default of mtp-chain: --set is stronger
    decided     when the context is made, by what runs its layers
    set it      --set mtp-chain.depth=VALUE, PACELINE_MTP_CHAIN__DEPTH=VALUE
    ");
    assert_snapshot!(cpu().why("mtp-chain.dept"), @"the setting `mtp-chain.dept` is not known; did you mean `mtp-chain.depth`?");
}

#[test]
fn programs_get_the_same() {
    let json = cpu().report(|report| report.json());
    let setting = |key: &str| {
        let settings = json["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["key"] == key).unwrap().clone()
    };
    assert_eq!(json["placement"][0]["devices"][0]["device"], "cpu:0");
    assert_eq!(json["refused"][0]["id"], "dflash");
    assert_snapshot!(sorted_json(&setting("speculation.rollback")), @r#"
    {
      "from": {
        "measured": "the logits and texts of tests/e2e/rollback.rs and speculation.rs are the same, to the bit, as with snapshots",
        "source": {
          "kind": "rule",
          "layer": "shipped",
          "place": {
            "column": 1,
            "file": "registry.toml",
            "line": 20
          }
        },
        "untested": "speed against snapshots; other backends, families and rollback strategies, where snapshots stay the default",
        "value": "replay",
        "when": "backend = cpu, arch = qwen35, recurrent_layers = all-on-one, sequences = 1, rollback.kind = gdn-replay, for recurrent layers"
      },
      "instead_of": [
        {
          "measured": null,
          "source": {
            "kind": "built_in"
          },
          "untested": null,
          "value": "snapshots",
          "when": null,
          "why": {
            "reason": "weaker"
          }
        }
      ],
      "key": "speculation.rollback",
      "plugin": null,
      "stage": "context",
      "text": "replay",
      "value": "replay"
    }
    "#);
    assert_eq!(setting("context")["value"], serde_json::Value::Null);
    assert_eq!(setting("mtp-chain.kv_only")["value"], true);
}
