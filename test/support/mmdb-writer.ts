/**
 * Writes small MaxMind DB files, so that tests define the records they need instead of shipping binaries.
 *
 * All numbers are written as doubles. A record object that several networks use is written to the data section once.
 * Format: maxmind.github.io/MaxMind-DB.
 */

export type MmdbValue = string | number | boolean | MmdbValue[] | { [key: string]: MmdbValue }

export type MmdbSource = {
  ipVersion: 4 | 6
  /** Records by network, such as `81.2.69.0/24`. In an IPv6 file, IPv4 networks are placed below `::/96`. */
  networks: Record<string, MmdbValue>
  /** Networks that get a node without any record, as some writers create for reserved networks. */
  barren?: string[]
  recordSize?: 24 | 28 | 32
  databaseType?: string
  /** The build time in seconds since 1970. */
  buildEpoch?: number
}

type Node = [Child, Child]
type Child = Node | number | null

/** Returns the file's bytes. Throws if networks overlap. */
export function writeMmdb(source: MmdbSource): Buffer {
  const {
    ipVersion,
    networks,
    barren = [],
    recordSize = 28,
    databaseType = 'Test-City',
    buildEpoch = 1_780_000_000,
  } = source
  const root: Node = [null, null]
  const records: MmdbValue[] = []
  for (const [network, record] of Object.entries(networks)) {
    let index = records.indexOf(record)
    if (index < 0) index = records.push(record) - 1
    insert(root, prefixBits(network, ipVersion), index)
  }

  for (const network of barren) insert(root, prefixBits(network, ipVersion), [null, null])

  const offsets: number[] = []
  const data: Buffer[] = []
  let dataLength = 0
  for (const record of records) {
    const bytes = encode(record)
    offsets.push(dataLength)
    data.push(bytes)
    dataLength += bytes.length
  }
  const nodes = numbered(root)
  const metadata = Buffer.concat([
    control(7, 9),
    ...entry('binary_format_major_version', uint(5, 2)),
    ...entry('binary_format_minor_version', uint(5, 0)),
    ...entry('build_epoch', uint(9, buildEpoch)),
    ...entry('database_type', encode(databaseType)),
    ...entry('description', encode({ en: 'Test' })),
    ...entry('ip_version', uint(5, ipVersion)),
    ...entry('languages', encode(['en'])),
    ...entry('node_count', uint(6, nodes.size)),
    ...entry('record_size', uint(5, recordSize)),
  ])
  const tree = encodeTree(nodes, { offsets, recordSize })
  const marker = Buffer.from('\xab\xcd\xefMaxMind.com', 'latin1')
  return Buffer.concat([tree, Buffer.alloc(16), ...data, marker, metadata])
}

function insert(root: Node, bits: number[], inserted: Node | number): void {
  let node = root
  for (const [depth, bit] of bits.entries()) {
    const child = node[bit] ?? null
    if (depth === bits.length - 1) {
      if (child !== null) throw new Error('networks overlap')
      node[bit] = inserted
      return
    }
    if (typeof child === 'number') throw new Error('networks overlap')
    const next: Node = child ?? [null, null]
    node[bit] = next
    node = next
  }
}

/** Numbers the nodes depth first; the root is 0. */
function numbered(root: Node): Map<Node, number> {
  const nodes = new Map<Node, number>()
  const visit = (node: Node): void => {
    nodes.set(node, nodes.size)
    for (const child of node) if (Array.isArray(child)) visit(child)
  }
  visit(root)
  return nodes
}

function encodeTree(
  nodes: Map<Node, number>,
  { offsets, recordSize }: { offsets: number[]; recordSize: number },
) {
  const value = (child: Child): number => {
    if (child === null) return nodes.size
    if (Array.isArray(child)) return nodes.get(child) ?? 0
    return nodes.size + 16 + (offsets[child] ?? 0)
  }
  const tree = Buffer.alloc((nodes.size * recordSize) / 4)
  for (const [[leftChild, rightChild], number] of nodes) {
    const left = value(leftChild)
    const right = value(rightChild)
    const at = (number * recordSize) / 4
    if (recordSize === 32) {
      tree.writeUInt32BE(left, at)
      tree.writeUInt32BE(right, at + 4)
    } else {
      const middle = recordSize === 28 ? 1 : 0
      tree.writeUIntBE(left & 0xffffff, at, 3)
      tree.writeUIntBE(right & 0xffffff, at + 3 + middle, 3)
      if (middle === 1) tree.writeUInt8(((left >>> 24) << 4) | (right >>> 24), at + 3)
    }
  }
  return tree
}

function prefixBits(network: string, ipVersion: 4 | 6): number[] {
  const slash = network.indexOf('/')
  const address = network.slice(0, slash)
  const length = Number(network.slice(slash + 1))
  if (!address.includes(':')) {
    const bits = address
      .split('.')
      .flatMap((octet) => bitsOf(Number(octet), 8))
      .slice(0, length)
    return ipVersion === 4 ? bits : [...new Array<number>(96).fill(0), ...bits]
  }
  const [head = '', tail = ''] = address.split('::')
  const groups = (text: string) =>
    text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16))
  const left = groups(head)
  const right = groups(tail)
  const words = [...left, ...new Array<number>(8 - left.length - right.length).fill(0), ...right]
  return words.flatMap((word) => bitsOf(word, 16)).slice(0, length)
}

function bitsOf(value: number, width: number): number[] {
  return Array.from({ length: width }, (_, index) => (value >>> (width - 1 - index)) & 1)
}

function encode(value: MmdbValue): Buffer {
  if (typeof value === 'string') {
    const bytes = Buffer.from(value)
    return Buffer.concat([control(2, bytes.length), bytes])
  }
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(8)
    bytes.writeDoubleBE(value)
    return Buffer.concat([control(3, 8), bytes])
  }
  if (typeof value === 'boolean') return control(14, value ? 1 : 0)
  if (Array.isArray(value)) return Buffer.concat([control(11, value.length), ...value.map(encode)])
  const entries = Object.entries(value)
  return Buffer.concat([
    control(7, entries.length),
    ...entries.flatMap(([key, item]) => entry(key, encode(item))),
  ])
}

function entry(key: string, value: Buffer): [Buffer, Buffer] {
  return [encode(key), value]
}

function uint(type: number, value: number): Buffer {
  const hex = value === 0 ? '' : value.toString(16)
  const bytes = Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex')
  return Buffer.concat([control(type, bytes.length), bytes])
}

/** The control bytes of a value of `type`, for sizes below 65,821. */
function control(type: number, size: number): Buffer {
  const short = size < 29 ? size : size < 285 ? 29 : 30
  const head = type > 7 ? [short, type - 7] : [(type << 5) | short]
  if (short === 29) head.push(size - 29)
  if (short === 30) head.push((size - 285) >>> 8, (size - 285) & 255)
  return Buffer.from(head)
}
