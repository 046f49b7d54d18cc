//! The layout of every ABI struct, kept in `tests/abi_layout.txt`. Within a major version only appends at the end
//! of a struct are allowed; to accept one, run with `PACELINE_ACCEPT_ABI=1` and read the difference.

use paceline_plugin_api::abi::*;
use std::fmt::Write;

macro_rules! layout {
    ($out:expr, $type:ident { $($field:ident),* $(,)? }) => {{
        // A field that is missing in this list does not compile.
        #[allow(unused)]
        fn complete(value: &$type) { let $type { $($field: _),* } = value; }
        writeln!($out, "{}", stringify!($type)).unwrap();
        $(writeln!(
            $out,
            "  {:<22} offset {:>3}",
            stringify!($field),
            core::mem::offset_of!($type, $field),
        ).unwrap();)*
        writeln!($out, "  (size) {}", size_of::<$type>()).unwrap();
    }};
}

fn layout() -> String {
    let mut out = String::new();
    layout!(out, Str { ptr, len });
    layout!(out, Bytes { ptr, len });
    layout!(out, Status { size, code, flags, message, release });
    layout!(
        out,
        PluginTable {
            size,
            abi_oldest,
            abi_built,
            id,
            plugin_version,
            kind,
            reserved,
            descriptor,
            get_interface,
            shutdown,
        }
    );
    layout!(
        out,
        HostTable {
            size,
            abi_oldest,
            abi_current,
            context,
            log_enabled,
            log_event,
            span_new,
            span_enter,
            span_exit,
            span_close,
            get_interface,
        }
    );
    layout!(out, LogField { key, value });
    layout!(out, GraphValue { size, kind, dtype, rank, dims, live, offset, state_kind, name });
    layout!(
        out,
        GraphNode { size, version, attribute_count, operation, inputs, input_count, outputs, output_count }
    );
    layout!(out, GraphAttribute { size, key, kind, reserved, integer, float, text, list, list_count });
    layout!(
        out,
        GraphTable {
            size,
            reader_open,
            reader_free,
            value_count,
            node_count,
            value,
            node,
            attribute,
            result_count,
            result,
            builder_new,
            builder_value,
            builder_node,
            builder_result,
            builder_bytes,
            builder_free,
        }
    );
    layout!(out, DeviceInfo { size, kind, units, name, physical_id, arch, capabilities, memory_total });
    layout!(out, MemoryInfo { size, total, free, granularity });
    layout!(
        out,
        Counters {
            size,
            launches,
            waits,
            uploads,
            upload_bytes,
            downloads,
            download_bytes,
            quantized_rows,
            arena_bytes,
        }
    );
    layout!(out, WeightUse { size, name, dtype, uses, rank, group, dims });
    layout!(out, WeightLayout { layout, bytes, alignment });
    layout!(
        out,
        PlanInfo {
            size,
            workspace_bytes,
            workspace_alignment,
            parameter_bytes,
            result_bytes,
            node_count,
            refused_count,
        }
    );
    layout!(out, NodePlan { size, refused, row_invariance, numerics, bytes_read, operations, text });
    layout!(out, StatePlan { bytes, alignment, layout });
    layout!(out, ArenaSpan { arena, offset, bytes });
    layout!(out, SemaphorePoint { semaphore, value });
    layout!(out, WeightImport { size, weight, layout, target, source });
    layout!(
        out,
        LoadArgs {
            size,
            weights,
            weight_count,
            states,
            state_count,
            workspace,
            parameters,
            parameter_stride,
            results,
            result_stride,
            slots,
            reserved,
        }
    );
    layout!(out, LaunchArgs { size, slot, reserved, waits, wait_count, signals, signal_count });
    layout!(out, SettingText { key, value });
    layout!(
        out,
        BackendTable {
            size,
            device_count,
            device_info,
            layout_weights,
            plan,
            plan_info,
            plan_node,
            plan_state,
            plan_free,
            device_open,
            device_close,
            device_memory,
            device_counters,
            arena_create,
            arena_free,
            arena_host,
            weights_import,
            executable_load,
            executable_free,
            launch,
            executable_error,
            state_export,
            state_import,
            semaphore_create,
            semaphore_free,
            semaphore_wait,
            semaphore_value,
            semaphore_signal,
            semaphore_failure,
        }
    );
    layout!(out, WeightTypesTable { size, dequantize, quantize });
    layout!(out, PeerCopyArgs { size, to, from, waits, wait_count, signals, signal_count });
    layout!(out, PeerCopyTable { size, route, copy });
    layout!(out, CaptureInfo { size, is_captured, reserved, captures, replays, rebuilds, reason });
    layout!(out, GraphCaptureTable { size, device, executable, warm_up });
    strategy_layout(&mut out);
    out
}

fn strategy_layout(out: &mut String) {
    layout!(
        out,
        ContextFacts {
            size,
            vocabulary,
            hidden,
            layers,
            sequences,
            positions,
            blocks_per_sequence,
            key_type,
            value_type,
            staged_rows,
            rollback_depth,
            microbatch,
            reserved,
            backend,
            architecture,
        }
    );
    layout!(out, TensorFacts { size, dtype, rank, dims });
    layout!(out, GroupRows { position, count, tokens });
    layout!(
        out,
        SessionTable {
            size,
            context,
            metadata_integer,
            metadata_number,
            metadata_text,
            tensor,
            has_fragment,
            declare_tap,
            declare_ring,
            declare_program,
            run,
            error,
        }
    );
    layout!(out, DrafterInfo { size, most, kind, cost, fixed });
    layout!(
        out,
        ProposeArgs {
            size,
            sequence,
            frontier,
            anchor,
            most,
            tokens,
            confidence,
            distributions,
            count,
            reserved,
        }
    );
    layout!(out, Outcome { size, sequence, verified, accepted, drafted, wanted });
    layout!(
        out,
        DrafterTable {
            size,
            create,
            free,
            info,
            begin,
            observe,
            propose,
            resolve,
            truncate,
            explain,
            error,
            save,
            restore,
        }
    );
    layout!(
        out,
        DeltaNetShape {
            size,
            rows,
            sequences,
            slots,
            depth,
            key_heads,
            value_heads,
            key_width,
            value_width,
            scale,
            reserved,
        }
    );
    layout!(out, RollbackTable { size, create, free, delta_net, settle });
}

#[test]
#[cfg(target_pointer_width = "64")]
fn the_layout_only_grows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/abi_layout.txt");
    let now = layout();
    if std::env::var_os("PACELINE_ACCEPT_ABI").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert_eq!(kept, now, "the ABI changed: only appends are allowed, accepted with PACELINE_ACCEPT_ABI=1");
}
