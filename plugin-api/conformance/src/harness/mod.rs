//! Runs graphs on a backend as a host does: layouts, plan, arenas, import, load, launch, wait.
//!
//! ```no_run
//! # fn example(backend: &paceline_plugin_api::client::BackendClient, graph: &paceline_plugin_api::graph::Graph,
//! #     weights: &[Vec<u8>], parameters: &[u8]) -> Result<(), paceline_conformance::harness::HarnessError> {
//! use paceline_conformance::harness::Bench;
//! let bench = Bench::open(backend, 0, &[])?;
//! let mut loaded = bench.load(graph, weights)?;
//! let results = loaded.run(parameters)?;
//! # Ok(())
//! # }
//! ```

mod loaded;
mod placement;

pub use loaded::Loaded;
pub use placement::Placement;

use paceline_plugin_api::backend::{WeightLayout, WeightUse, weight_uses};
use paceline_plugin_api::client::{BackendClient, DeviceClient, PlanClient};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::{Error, ErrorKind};

/// Why a graph did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HarnessError {
    /// The backend says that it cannot run the graph: a node of its plan or a weight is refused.
    #[error("refused: {0}")]
    Refused(String),
    /// A call failed.
    #[error("{step}: {error}")]
    Failed {
        /// Which call.
        step: &'static str,
        /// What it reported.
        error: Error,
    },
}

fn failed(step: &'static str) -> impl Fn(Error) -> HarnessError {
    move |error| HarnessError::Failed { step, error }
}

/// An opened device with what planning for it needs.
pub struct Bench {
    backend: BackendClient,
    device: DeviceClient,
    capabilities: String,
}

impl Bench {
    /// Opens a device of a backend.
    ///
    /// # Errors
    /// No such device, or a device or settings that the backend refuses.
    pub fn open(
        backend: &BackendClient,
        device: u32,
        settings: &[(String, String)],
    ) -> Result<Self, HarnessError> {
        let infos = backend.devices().map_err(failed("devices"))?;
        let info = infos.into_iter().nth(device as usize).ok_or_else(|| HarnessError::Failed {
            step: "devices",
            error: Error::invalid(format!("there is no device {device}")),
        })?;
        let opened = backend.open(device, settings).map_err(failed("open"))?;
        Ok(Self { backend: backend.clone(), device: opened, capabilities: info.capabilities })
    }

    /// The backend.
    pub fn backend(&self) -> &BackendClient {
        &self.backend
    }

    /// The device.
    pub fn device(&self) -> &DeviceClient {
        &self.device
    }

    /// The device's capabilities, in the backend's own words.
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// Layouts of weights.
    ///
    /// # Errors
    /// A refusal where the backend names a weight that it cannot take.
    pub fn layouts(&self, weights: &[WeightUse]) -> Result<Vec<WeightLayout>, HarnessError> {
        self.backend.layout_weights(&self.capabilities, weights).map_err(|error| {
            let names_one = weights.iter().any(|weight| error.message.contains(&weight.name));
            match error.kind {
                ErrorKind::Unsupported | ErrorKind::Invalid if names_one => {
                    HarnessError::Refused(error.message)
                }
                _ => HarnessError::Failed { step: "layout_weights", error },
            }
        })
    }

    /// Layouts and plan of a graph that stands alone.
    ///
    /// # Errors
    /// A refused weight or a failed call. Refused nodes are in the plan.
    pub fn plan(&self, graph: &Graph) -> Result<PlanClient, HarnessError> {
        let layouts = self.layouts(&weight_uses([graph]))?;
        self.backend.plan(graph, &self.capabilities, &layouts).map_err(failed("plan"))
    }

    /// Plans graphs together and makes memory for them: weights and states that have the same name are shared, as is
    /// the workspace. `weights` are canonical bytes in the order of the first graph's weights, which are all there are.
    ///
    /// # Errors
    /// A refusal of the backend, or a failed call.
    pub fn place(&self, graphs: &[&Graph], weights: &[Vec<u8>]) -> Result<Placement, HarnessError> {
        Placement::new(self, graphs, weights)
    }

    /// Makes memory for one graph and loads it with one slot.
    ///
    /// # Errors
    /// A refusal of the backend, or a failed call.
    pub fn load(&self, graph: &Graph, weights: &[Vec<u8>]) -> Result<Loaded, HarnessError> {
        self.place(&[graph], weights)?.load(0, 1)
    }
}
