/**
 * Arrays in PostgreSQL's binary format, which node-postgres passes on untouched when a parameter is a Buffer. The text
 * format would have every quote of every JSON text escaped here and unescaped there; on the append path that is the
 * largest single cost.
 */

const oid = { int4: 23, int8: 20, text: 25 }
const headerBytes = 20

const arrayOf = (elementOid: number, length: number, bytes: number): Buffer => {
  const buffer = Buffer.allocUnsafe(headerBytes + bytes)
  buffer.writeInt32BE(1, 0) // dimensions
  buffer.writeInt32BE(0, 4) // no nulls
  buffer.writeInt32BE(elementOid, 8)
  buffer.writeInt32BE(length, 12)
  buffer.writeInt32BE(1, 16) // lower bound
  return buffer
}

export const int4Array = (values: readonly number[]): Buffer => {
  const buffer = arrayOf(oid.int4, values.length, values.length * 8)
  let at = headerBytes
  for (const value of values) {
    at = buffer.writeInt32BE(4, at)
    at = buffer.writeInt32BE(value, at)
  }
  return buffer
}

/** Safe integers as bigint[]. */
export const int8Array = (values: readonly number[]): Buffer => {
  const buffer = arrayOf(oid.int8, values.length, values.length * 12)
  let at = headerBytes
  for (const value of values) {
    at = buffer.writeInt32BE(8, at)
    at = buffer.writeInt32BE(Math.floor(value / 0x1_0000_0000), at)
    at = buffer.writeUInt32BE(value >>> 0, at)
  }
  return buffer
}

/** Texts, or null, as text[]. The server parses elements into whatever the statement casts them to. */
export const textArray = (values: readonly (string | null)[]): Buffer => {
  let bytes = 0
  for (const value of values) bytes += 4 + (value === null ? 0 : Buffer.byteLength(value))
  const buffer = arrayOf(oid.text, values.length, bytes)
  let nulls = 0
  let at = headerBytes
  for (const value of values) {
    if (value === null) {
      nulls = 1
      at = buffer.writeInt32BE(-1, at)
      continue
    }
    const length = buffer.write(value, at + 4)
    buffer.writeInt32BE(length, at)
    at += 4 + length
  }
  buffer.writeInt32BE(nulls, 4)
  return buffer
}
