"""Tables: eight columns of pandas or polars to torch; goals_all.json has the goals, as of all in the extra ``all``."""

from bench.rows import Group, Row

COLUMNS = "{str(n): numpy.arange(1000.0) for n in range(8)}"

GROUP = Group("tables", (
    Row("pandas.DataFrame -> torch", 'dlbridge.convert_tree(pandas_frame, to="torch", readonly="share")', {
        "values": "{name: torch.tensor(pandas_frame[name].values) for name in pandas_frame}",
    }, share=0.1),
    Row("polars.DataFrame -> torch", 'dlbridge.convert_tree(polars_frame, to="torch", readonly="share")', {
        "DataFrame.to_torch": 'polars_frame.to_torch("dict")',
    }, share=0.1),
    Row("polars.DataFrame -> torch, copied", 'dlbridge.convert_tree(polars_frame, to="torch")', {
        "DataFrame.to_torch": 'polars_frame.to_torch("dict")',
    }, share=0.1),
), {
    "pandas_frame": f"pandas.DataFrame({COLUMNS})",
    "polars_frame": f"polars.DataFrame({COLUMNS})",
})
