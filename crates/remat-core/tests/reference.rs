//! Replays the DTR authors' logs through the engine and compares with what their simulator reports, integer for integer.
//!
//! The data are found by `REMAT_DTR_DATA`, else beside the repository; without them the test says so and passes.

use remat_core::*;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const POOL: PoolId = PoolId(0);

fn data() -> Option<PathBuf> {
    let path = match std::env::var_os("REMAT_DTR_DATA") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    if path.join("dtr-logs").is_dir() {
        return Some(path);
    }
    println!("skipped: no DTR data at {}", path.display());
    None
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().expect("a number"),
        value => value.as_u64().expect("a number"),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// A log on its way through the engine.
struct Replay {
    engine: Engine,
    names: HashMap<String, TensorId>,
    order: Vec<String>,
}

impl Replay {
    fn name(&mut self, name: &str, tensor: TensorId) {
        if self.names.insert(name.to_owned(), tensor).is_none() {
            self.order.push(name.to_owned());
        }
    }

    fn release(&mut self, tensor: TensorId) {
        self.engine.release(tensor).expect("a held tensor");
    }

    fn run(
        &mut self,
        inputs: &[TensorId],
        outputs: &[Output],
        cost: u64,
    ) -> Result<Vec<TensorId>, Error> {
        let spec = OpSpec {
            inputs,
            outputs,
            workspace: Bytes(0),
            workspace_pool: POOL,
            replay: remat_core::Replay::Allowed,
        };
        let op = self.engine.begin_expecting(&spec, Cost(cost))?;
        self.engine.finish(
            op,
            &Finished {
                cost: Cost(cost),
                bytes: None,
            },
        )?;
        Ok(self.engine.outputs(op).to_vec())
    }

    fn log(&mut self, log: &[Value]) -> Result<(), Error> {
        let start = log
            .iter()
            .position(|line| line["ANNOTATION"] == "START")
            .map_or(0, |at| at + 1);
        let mut lines = log[start..].iter();
        while let Some(line) = lines.next() {
            match text(&line["INSTRUCTION"]) {
                "CONSTANT" => {
                    let size = number(&lines.next().expect("MEMORY")["MEMORY"]);
                    let tensor = self.engine.constant(Bytes(size), POOL)?;
                    self.name(text(&line["NAME"]), tensor);
                }
                "CALL" => {
                    let inputs: Vec<_> = line["ARGS"]
                        .as_array()
                        .expect("ARGS")
                        .iter()
                        .map(|name| self.names[text(name)])
                        .collect();
                    let results = line["RESULT"].as_array().expect("RESULT");
                    let mut outputs = Vec::new();
                    for _ in results {
                        let size = number(&lines.next().expect("MEMORY")["MEMORY"]);
                        let alias: i64 = text(&lines.next().expect("ALIAS")["ALIAS"])
                            .parse()
                            .expect("an index");
                        outputs.push(match usize::try_from(alias) {
                            Ok(of) => Output::Alias { of },
                            Err(_) => Output::Fresh {
                                bytes: Bytes(size),
                                pool: POOL,
                            },
                        });
                    }
                    let made = self.run(&inputs, &outputs, number(&line["TIME"]))?;
                    for (name, tensor) in results.iter().zip(made) {
                        self.name(text(name), tensor);
                    }
                }
                "MUTATE" => {
                    let args = line["ARGS"].as_array().expect("ARGS");
                    let inputs: Vec<_> = args.iter().map(|name| self.names[text(name)]).collect();
                    let mutated: Vec<usize> = line["MUTATE"]
                        .as_array()
                        .expect("MUTATE")
                        .iter()
                        .map(|index| number(index) as usize)
                        .collect();
                    let size =
                        |&index: &usize| self.engine.bytes(self.engine.storage(inputs[index]));
                    let outputs: Vec<_> = mutated
                        .iter()
                        .map(|index| Output::Fresh {
                            bytes: size(index),
                            pool: POOL,
                        })
                        .collect();
                    let made = self.run(&inputs, &outputs, number(&line["TIME"]))?;
                    for (&index, tensor) in mutated.iter().zip(made) {
                        let old = self
                            .names
                            .insert(text(&args[index]).to_owned(), tensor)
                            .expect("a name");
                        self.release(old);
                    }
                }
                "COPY" => {
                    let tensor = self.names[text(&line["SRC"])];
                    self.engine.retain(tensor)?;
                    self.name(text(&line["DST"]), tensor);
                }
                "COPYFROM" => {
                    let source = self.names[text(&line["SRC"])];
                    let old = self.names[text(&line["DST"])];
                    self.release(old);
                    self.engine.retain(source)?;
                    self.names.insert(text(&line["DST"]).to_owned(), source);
                }
                "RELEASE" => {
                    if let Some(tensor) = self.names.remove(text(&line["NAME"])) {
                        self.release(tensor);
                    }
                }
                "ANNOTATE" => {}
                other => panic!("unknown instruction {other}"),
            }
        }
        let mut pinned = std::collections::HashSet::new();
        for name in std::mem::take(&mut self.order) {
            let Some(&tensor) = self.names.get(&name) else {
                continue;
            };
            if pinned.insert(tensor) {
                self.engine.pin(tensor)?;
            }
        }
        Ok(())
    }
}

fn outcome(
    log: &[Value],
    policy: &str,
    budget: u64,
    base_compute: u64,
) -> (&'static str, u64, u64, u64) {
    let config = Config {
        budgets: vec![Some(Bytes(budget))],
        policy: policy.parse().expect("a policy"),
        dealloc: Dealloc::Eager,
        lineage: Lineage::Keep,
        order: ReplayOrder::Dtr,
        thrash: ThrashLimit::Total(Cost(base_compute)),
        seed: 0,
    };
    let mut replay = Replay {
        engine: Engine::new(config),
        names: HashMap::new(),
        order: Vec::new(),
    };
    let result = replay.log(log);
    let engine = &replay.engine;
    let status = match result {
        Ok(()) => {
            let counters = engine.counters();
            return (
                "ok",
                engine.clock(),
                counters.replayed_cost.0,
                engine.peak(POOL).0,
            );
        }
        Err(Error::Budget { .. }) => "oom",
        Err(Error::Thrash { .. }) => "thrash",
        Err(other) => panic!("{other}"),
    };
    match engine.refused() {
        Some(at) => (status, at.clock, at.counters.replayed_cost.0, at.peak.0),
        None => (status, engine.clock(), 0, engine.peak(POOL).0),
    }
}

fn compare(model: &str, heuristic: &str, policy: &str) {
    let Some(data) = data() else { return };
    let log: Vec<Value> = read(&data.join(format!("dtr-logs/{model}.log")))
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let reference = data.join(format!(
        "dtr-reference/{model}-{heuristic}-RuntimeV2EagerOptimized.json"
    ));
    let reference: Value = serde_json::from_str(&read(&reference)).expect("JSON");
    let base = number(&reference["base"]["compute"]);
    let mut wrong = Vec::new();
    for row in reference["results"].as_array().expect("results") {
        let expected = (
            text(&row["status"]),
            number(&row["clock"]),
            number(&row["remat"]),
            number(&row["max_memory"]),
        );
        let found = outcome(&log, policy, number(&row["budget"]), base);
        if found != expected {
            wrong.push(format!(
                "{model} {policy} ratio {}: {found:?}, reference {expected:?}",
                row["ratio"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! agreement {
    ($($(#[$note:meta])* $test:ident: $model:literal $heuristic:literal $policy:literal,)*) => {
        $(#[test] $(#[$note])* fn $test() { compare($model, $heuristic, $policy); })*
    };
}

agreement! {
    resnet32_eq: "resnet32" "DTREqClass" "dtr-eq",
    resnet32_local: "resnet32" "DTRLocal" "dtr-local",
    resnet32_lru: "resnet32" "LRU" "lru",
    resnet32_size: "resnet32" "LargestStorage" "size",
    resnet32_exact: "resnet32" "DTR" "dtr",
    resnet32_msps: "resnet32" "MSPS" "msps",
    unet_eq: "unet" "DTREqClass" "dtr-eq",
    unet_local: "unet" "DTRLocal" "dtr-local",
    unet_lru: "unet" "LRU" "lru",
    unet_size: "unet" "LargestStorage" "size",
    unet_exact: "unet" "DTR" "dtr",
    unet_msps: "unet" "MSPS" "msps",
    #[ignore = "long without optimization"]
    inceptionv4_eq: "inceptionv4" "DTREqClass" "dtr-eq",
    #[ignore = "long without optimization"]
    inceptionv4_local: "inceptionv4" "DTRLocal" "dtr-local",
    #[ignore = "long without optimization"]
    inceptionv4_lru: "inceptionv4" "LRU" "lru",
    #[ignore = "long without optimization"]
    inceptionv4_size: "inceptionv4" "LargestStorage" "size",
    #[ignore = "long without optimization"]
    inceptionv4_exact: "inceptionv4" "DTR" "dtr",
    #[ignore = "long without optimization"]
    inceptionv4_msps: "inceptionv4" "MSPS" "msps",
    #[ignore = "long without optimization"]
    transformer_eq: "transformer" "DTREqClass" "dtr-eq",
    #[ignore = "long without optimization"]
    transformer_local: "transformer" "DTRLocal" "dtr-local",
    #[ignore = "long without optimization"]
    transformer_lru: "transformer" "LRU" "lru",
    #[ignore = "long without optimization"]
    transformer_size: "transformer" "LargestStorage" "size",
    #[ignore = "long without optimization"]
    transformer_exact: "transformer" "DTR" "dtr",
    #[ignore = "long without optimization"]
    transformer_msps: "transformer" "MSPS" "msps",
    #[ignore = "long without optimization"]
    treelstm_eq: "treelstm" "DTREqClass" "dtr-eq",
    #[ignore = "long without optimization"]
    treelstm_local: "treelstm" "DTRLocal" "dtr-local",
    #[ignore = "long without optimization"]
    treelstm_lru: "treelstm" "LRU" "lru",
    #[ignore = "long without optimization"]
    treelstm_size: "treelstm" "LargestStorage" "size",
    #[ignore = "long without optimization"]
    treelstm_exact: "treelstm" "DTR" "dtr",
    #[ignore = "long without optimization"]
    treelstm_msps: "treelstm" "MSPS" "msps",
}
