"""What the consumers of exports take, as JSON Schemas; each written after the source that it names."""

# github-action-benchmark, src/extract.ts: an array of BenchmarkResult; `value` and `name` are read, the others are optional texts.
BENCHMARK_ACTION = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"type": "string"},
            "value": {"type": "number"},
            "range": {"type": "string", "pattern": r"^(\+-|±)\s*\d"},
            "extra": {"type": "string"},
        },
    },
}

# bencher.dev/bmf.json, and the lengths that the page of Bencher Metric Format gives.
BENCHER = {
    "type": "object",
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64},
        "additionalProperties": {
            "type": "object",
            "required": ["value"],
            "additionalProperties": False,
            "properties": {"value": {"type": "number"}, "lower_value": {"type": "number"}, "upper_value": {"type": "number"}},
        },
    },
}

# pytorch/test-infra, clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql: names and types of the columns that a benchmark fills.
_TEXT, _TEXTS = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}


def _tuple(required, **fields):
    return {"type": "object", "required": required, "additionalProperties": False, "properties": fields}


PYTORCH = {
    "type": "array",
    "items": _tuple(
        ["benchmark", "model", "metric"],
        benchmark=_tuple(["name"], name=_TEXT, mode=_TEXT, dtype=_TEXT, extra_info=_TEXTS),
        model=_tuple(["name"], name=_TEXT, type=_TEXT, backend=_TEXT, origins={"type": "array", "items": _TEXT}, extra_info=_TEXTS),
        metric=_tuple(
            ["name", "benchmark_values"],
            name=_TEXT,
            benchmark_values={"type": "array", "minItems": 1, "items": {"type": "number"}},
            target_value={"type": "number"},
            extra_info=_TEXTS,
        ),
        runners={
            "type": "array",
            "items": _tuple(
                [],
                name=_TEXT,
                type=_TEXT,
                cpu_info=_TEXT,
                cpu_count={"type": "integer", "minimum": 0},
                mem_info=_TEXT,
                avail_mem_in_gb={"type": "integer", "minimum": 0},
                gpu_info=_TEXT,
                gpu_count={"type": "integer", "minimum": 0},
                gpu_mem_info=_TEXT,
                avail_gpu_mem_in_gb={"type": "integer", "minimum": 0},
                extra_info=_TEXTS,
            ),
        },
        dependencies={
            "type": "object",
            "additionalProperties": _tuple([], repo=_TEXT, branch=_TEXT, sha=_TEXT, version=_TEXT, extra_info=_TEXTS),
        },
    ),
}
