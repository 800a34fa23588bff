//! Writes a table as a Parquet file: one row group, uncompressed.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::columns::{Cell, Column, Table};

/// The kind of a column: that of its first cell. A column without cells counts as texts.
fn kind(column: &Column) -> Physical {
    match column.cells.iter().flatten().next() {
        Some(Cell::Int(_)) => Physical::INT64,
        Some(Cell::Float(_)) => Physical::DOUBLE,
        Some(Cell::Text(_)) | None => Physical::BYTE_ARRAY,
    }
}

/// Writes the table. The same table gives the same bytes.
///
/// # Errors
/// The writer fails.
pub(super) fn write<W: Write + Send>(table: &Table, out: W) -> Result<(), ParquetError> {
    let field = |column: &Column| {
        let physical = kind(column);
        let builder =
            Type::primitive_type_builder(&column.name, physical).with_repetition(Repetition::OPTIONAL);
        let builder = match physical {
            Physical::BYTE_ARRAY => builder.with_converted_type(ConvertedType::UTF8),
            _ => builder,
        };
        builder.build().map(Arc::new)
    };
    let fields = table.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("sweep").with_fields(fields).build()?;
    let properties =
        WriterProperties::builder().set_created_by(format!("deepram {}", env!("CARGO_PKG_VERSION")));
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
    let mut group = file.next_row_group()?;
    for column in &table.columns {
        // A level of 0 says that the row has no cell.
        let levels: Vec<i16> = column.cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        let cells = || column.cells.iter().flatten();
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General(format!("no place for the column {}", column.name)));
        };
        match kind(column) {
            Physical::INT64 => {
                let values: Vec<i64> = cells()
                    .filter_map(|cell| if let Cell::Int(n) = cell { Some(*n) } else { None })
                    .collect();
                writer.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
            }
            Physical::DOUBLE => {
                let values: Vec<f64> = cells().filter_map(Cell::number).collect();
                writer.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
            _ => {
                let values: Vec<ByteArray> = cells()
                    .filter_map(
                        |cell| if let Cell::Text(text) = cell { Some(text.as_str().into()) } else { None },
                    )
                    .collect();
                writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(())
}
