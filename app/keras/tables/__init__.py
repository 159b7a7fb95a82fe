"""Tables that Keras sees as variables.

A layer asks `table_kinds` for the table of its arguments. `initial_rows` has its first rows, and
`table_memory` refuses a table that does not fit. To Keras the table is a `TableVariable`: a handle
without rows, whose gradient is row-sparse. Only a table of the kind "device" is a plain variable,
marked by `is_table`, or a `StackedVariable` where several tables share a variable. `table_warnings`
tells of the parts of a step that read or write whole tables.
"""
