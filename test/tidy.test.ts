/** Rules that a compiler cannot check, enforced by reading the source. Each part is a file of `test/tidy`. */
import './tidy/capabilities.ts'
import './tidy/guides.ts'
import './tidy/imports.ts'
import './tidy/migrations.ts'
import './tidy/names.ts'
import './tidy/purity.ts'
import './tidy/texts.ts'
